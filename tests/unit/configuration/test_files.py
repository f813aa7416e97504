"""Which servers a configuration names, whoever's file it is, and what a person is told when it cannot be used."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscript.configuration.files import FILE_NAME, LARGEST_FILE, Configuration, load_configuration
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Invalid
from toolscript.domain.servers import ServerSpec, Transport

ENVIRONMENT = {"TOKEN": "s3cret", "EMPTY": "", "NESTED": "${TOKEN}", "BREAK": "a\r\nb", "NUL": "a\0b", "KEY_2": "k"}
quick = settings(max_examples=150, deadline=None)


class Place:
    """A home folder and a project folder to put files into."""

    def __init__(self, root: Path) -> None:
        self.home, self.folder = root / "home", root / "project"
        self.home.mkdir(exist_ok=True)
        self.folder.mkdir(exist_ok=True)

    def write(self, content: object, name: str = FILE_NAME, *, at_home: bool = False) -> Path:
        file = (self.home if at_home else self.folder) / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
        return file

    def load(self, path: Path | None = None, environment: Mapping[str, str] = ENVIRONMENT) -> Configuration:
        return load_configuration(path, home=self.home, folder=self.folder, environment=environment)

    def spec(self, **entry: object) -> ServerSpec:
        self.write({"mcpServers": {"one": entry}})
        (spec,) = self.load().servers
        return spec

    def error(self, content: object | None = None, path: Path | None = None) -> Invalid:
        if content is not None:
            self.write(content)
        with pytest.raises(Invalid) as caught:
            self.load(path)
        return caught.value

    def problems(self, **entry: object) -> list[str]:
        """What is said of an entry, without file and line."""
        error = self.error({"mcpServers": {"one": entry}})
        return [re.sub(r"^.*?, line \d+: mcpServers\.one\.?", "", p["message"]) for p in error.details["problems"]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """For properties, which try many files in one place."""
    return Place(tmp_path_factory.mktemp("configuration"))


# Where files are


@pytest.mark.req("G-01")
def test_without_files_there_are_no_servers_but_files_to_watch(place: Place) -> None:
    assert place.load() == Configuration((), (place.home / FILE_NAME, place.folder / FILE_NAME))


@pytest.mark.req("G-01")
def test_a_home_folder_that_is_also_the_folder_is_read_once(place: Place) -> None:
    place.write({"mcpServers": {"a": {"command": "x"}}}, at_home=True)
    loaded = load_configuration(home=place.home, folder=place.home, environment={})
    assert ([s.name for s in loaded.servers], loaded.files) == (["a"], (place.home / FILE_NAME,))


@pytest.mark.req("G-01")
@quick
@given(
    home=st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["x", "y", "off"])),
    project=st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["x", "y", "off"])),
)
def test_the_later_file_wins_per_server(lasting: Place, home: dict[str, str], project: dict[str, str]) -> None:
    for commands, at_home in ((home, True), (project, False)):
        entries = {name: {"command": command, "disabled": command == "off"} for name, command in commands.items()}
        lasting.write({"mcpServers": entries}, at_home=at_home)
    wanted = {name: command for name, command in (home | project).items() if command != "off"}
    assert {s.name: s.command for s in lasting.load().servers} == wanted


@pytest.mark.req("G-01")
def test_what_a_later_file_replaces_needs_no_variables(place: Place) -> None:
    place.write({"mcpServers": {"a": {"url": "https://example.com/${NOT_SET}"}}}, at_home=True)
    place.write({"mcpServers": {"a": {"command": "x"}}})
    assert [s.command for s in place.load().servers] == ["x"]


@pytest.mark.req("G-01")
def test_a_named_file_is_the_only_one_read(place: Place) -> None:
    place.write({"mcpServers": {"a": {"command": "x"}}})
    other = place.write({"mcpServers": {"b": {"command": "y"}}}, "other.json")
    for path in (other, Path("other.json")):
        loaded = place.load(path)
        assert ([s.name for s in loaded.servers], loaded.files) == (["b"], (other,))
    at_home = place.write({"mcpServers": {}}, "mine.json", at_home=True)
    assert place.load(Path("~/mine.json")).files == (at_home,)


@pytest.mark.req("G-01", "X-03")
def test_a_named_file_that_is_not_there_is_an_error(place: Place) -> None:
    missing = place.folder / "missing.json"
    error = place.error(path=missing)
    assert error.message == f"{missing} does not exist"
    assert error.details == {
        "file": str(missing),
        "key": "",
        "line": None,
        "problems": [{"file": str(missing), "key": "", "line": None, "message": error.message}],
    }


@pytest.mark.req("G-01", "X-03")
def test_a_file_that_cannot_be_read_is_named(place: Place) -> None:
    assert place.error(path=place.folder).message == f"{place.folder} cannot be read: is a directory"
    file = place.folder / FILE_NAME
    file.symlink_to(file)
    assert place.error().message == f"{file} cannot be read: too many levels of symbolic links"
    file.unlink()
    file.write_bytes(b'{\n"mcpServers": "\xff"}')
    assert place.error().message == f"{file} is not in UTF-8 (line 2)"
    file.write_bytes(json.dumps({"mcpServers": {}}).encode("utf-16-le"))
    assert place.error().message == f"{file} is not a text in UTF-8: it has NUL characters"
    file.write_bytes(b" " * (LARGEST_FILE + 1))
    assert place.error().message == f"{file} is larger than 5 MB"


# Files of other clients

CLAUDE_DESKTOP = """{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me"]},
    "My Notes": {"command": "uvx", "args": ["notes", 8080, true, 3.10], "env": {"PORT": 3000, "DEBUG": false}}
  }
}"""
CURSOR = """{"mcpServers": {
  "remote": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
  "old": {"url": "https://example.com/sse/"},
  "off": {"command": "x", "disabled": true, "env": {"A": "${NOT_SET}"}},
  "also off": {"command": "x", "enabled": false}
}}"""
WINDSURF_AND_GEMINI = """{"mcpServers": {
  "windsurf": {"serverUrl": "https://example.com/sse"},
  "gemini": {"httpUrl": "https://example.com/sse", "timeout": 5000, "trust": false, "includeTools": ["read_*"]},
  "cline": {"type": "streamableHttp", "url": "https://example.com/", "alwaysAllow": [], "autoApprove": ["x"]},
  "fastmcp": {"transport": "streamable-http", "url": "https://example.com/", "args": null}
}}"""
VS_CODE = """\ufeff// written by VS Code
{
  "inputs": [{"type": "promptString", "id": "key-2", "password": true},],
  "servers": {
    "io.github.github/github-mcp-server": {
      "type": "http", "url": "https://example.com/mcp/", "gallery": "https://example.com", "version": "1.0.3",
    },
    /* started here */
    "local": {
      "type": "stdio", "command": "${userHome}/bin/x", "args": ["${workspaceFolder}${pathSeparator}y"],
      "env": {"KEY": "${input:key-2}", "UNSET": null}, "cwd": "sub", "dev": {"watch": "*.js"}
    },
  },
}"""
BY_VS_CODE = [("io.github.github-github-mcp-server", Transport.HTTP), ("local", Transport.STDIO)]


@pytest.mark.req("G-01")
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (CLAUDE_DESKTOP, [("filesystem", Transport.STDIO), ("My Notes", Transport.STDIO)]),
        (CURSOR, [("remote", Transport.HTTP), ("old", Transport.SSE)]),
        (
            WINDSURF_AND_GEMINI,
            [
                ("windsurf", Transport.SSE),
                ("gemini", Transport.HTTP),
                ("cline", Transport.HTTP),
                ("fastmcp", Transport.HTTP),
            ],
        ),
        (VS_CODE, BY_VS_CODE),
        (f'{{"editor.tabSize": 2, "mcp": {VS_CODE.partition("{")[1]}{VS_CODE.partition("{")[2]}}}', BY_VS_CODE),
        ({"mcpServers": {}}, []),
        ({}, []),
    ],
)
def test_the_files_of_other_clients_are_read_as_they_are(
    place: Place, content: object, found: list[tuple[str, Transport]]
) -> None:
    file = place.write(content, "theirs.json")
    assert [(s.name, s.transport) for s in place.load(file).servers] == found


@pytest.mark.req("G-01")
def test_numbers_and_truths_become_the_texts_that_were_written(place: Place) -> None:
    place.write(CLAUDE_DESKTOP)
    notes = place.load().servers[1]
    assert notes.args == ("notes", "8080", "true", "3.10")
    assert notes.env == {"PORT": "3000", "DEBUG": "false"}


@pytest.mark.req("G-01")
@pytest.mark.parametrize("folder", [".vscode", ".cursor"])
def test_in_a_clients_folder_paths_are_relative_to_the_project(place: Place, folder: str) -> None:
    local = place.load(place.write(VS_CODE, f"{folder}/mcp.json")).servers[1]
    assert local.command == f"{place.home}/bin/x"
    assert local.args == (f"{place.folder}{os.sep}y",)
    assert local.env == {"KEY": "k"}
    assert local.cwd == str(place.folder / "sub")


# What an entry says


@pytest.mark.req("G-01")
def test_a_server_that_is_started(place: Place) -> None:
    spec = place.spec(
        command="~/bin/x",
        args=["a"],
        env={"A": "b"},
        cwd="~/work",
        includeTools=["read_*"],
        excludeTools=["read_all"],
    )
    assert spec == ServerSpec(
        "one",
        Transport.STDIO,
        command=f"{place.home}/bin/x",
        args=("a",),
        env={"A": "b"},
        cwd=str(place.home / "work"),
        include_tools=("read_*",),
        exclude_tools=("read_all",),
    )


@pytest.mark.req("G-01")
def test_a_server_that_is_reached(place: Place) -> None:
    spec = place.spec(type="sse", url="http://[::1]:8080/x?y=${TOKEN}", headers={"X-Key": " ${TOKEN} ", "X-N": 1})
    assert spec == ServerSpec(
        "one", Transport.SSE, url="http://[::1]:8080/x?y=s3cret", headers={"X-Key": "s3cret", "X-N": "1"}
    )
    assert "s3cret" not in repr(spec)


@pytest.mark.req("G-01")
@pytest.mark.parametrize(
    ("cwd", "folder"),
    [(None, None), ("", None), ("${EMPTY}", None), ("~", "home"), ("sub", "project/sub"), ("..", "project/..")],
)
def test_a_folder_is_relative_to_the_file(place: Place, cwd: str | None, folder: str | None) -> None:
    assert place.spec(command="x", cwd=cwd).cwd == (None if folder is None else str(place.folder.parent / folder))
    assert place.spec(command="x", cwd="/tmp").cwd == "/tmp"


@pytest.mark.req("G-01")
def test_what_kind_of_server_is_meant_can_be_said_where_both_are_there(place: Place) -> None:
    both = {"command": "x", "url": "https://example.com"}
    assert place.spec(type="stdio", **(both | {"url": ""})).transport is Transport.STDIO
    assert place.spec(type="http", **both).transport is Transport.HTTP
    assert place.problems(**both) == [" has both command and url: remove one, or say which with type"]


@pytest.mark.req("G-01")
def test_an_environment_file_is_read_watched_and_overruled(place: Place) -> None:
    lines = ["\ufeffFIRST=1\r", "# X=1", "", "export A = 'x # y' # note", 'B=""', "C=a b # note", "D=#1", "E='open"]
    file = place.write("\n".join([*lines, "no line", "=x", "F=a=b"]), "my.env")
    spec = place.spec(command="x", envFile="my.env", env={"F": "mine"})
    assert spec.env == {"FIRST": "1", "A": "x # y", "B": "", "C": "a b", "D": "#1", "E": "'open", "F": "mine"}
    assert place.load().files[-1] == file
    assert place.spec(command="x", envFile="missing.env").env == {}
    assert place.load().files[-1] == place.folder / "missing.env"
    assert place.problems(command="x", envFile=".") == [
        f"envFile names {place.folder}, which cannot be read: is a directory"
    ]


# Variables


@pytest.mark.req("G-01")
@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${TOKEN}", "s3cret"),
        ("a${TOKEN}b${env:TOKEN}c", "as3cretbs3cretc"),
        ("${EMPTY}", ""),
        ("${TOKEN:-other}", "s3cret"),
        ("${EMPTY:-other}", "other"),
        ("${NOT_SET:-other: $5}", "other: $5"),
        ("${NOT_SET:-}", ""),
        ("${env:NOT_SET:-other}", "other"),
        ("${input:key 2}", "k"),
        ("${workspaceFolderBasename}", "project"),
        ("${NESTED}", "${TOKEN}"),
        ("$TOKEN $$ $5 ${ ${} ${1} ${@} ${A B} ${TOKEN", "$TOKEN $$ $5 ${ ${} ${1} ${@} ${A B} ${TOKEN"),
        ("$${TOKEN}", "$s3cret"),
        ("${ ${TOKEN}", "${ s3cret"),
    ],
)
def test_variables_are_filled_in_once(place: Place, text: str, filled: str) -> None:
    spec = place.spec(command=f"x{text}", args=[text], env={"A": text}, cwd=f"/{text}")
    assert (spec.command, spec.args, spec.env) == (f"x{filled}", (filled,), {"A": filled})
    assert spec.cwd == str(Path(f"/{filled}"))


@pytest.mark.req("G-01")
@quick
@given(
    parts=st.lists(
        st.tuples(st.sampled_from(["A", "B"]), st.text(st.characters(exclude_characters="${}\0"), max_size=5))
    ),
    values=st.fixed_dictionaries({"A": st.text("${}AB:-", max_size=8), "B": st.text("${}AB:-", max_size=8)}),
)
def test_what_variables_hold_stands_where_they_stood(
    lasting: Place, parts: list[tuple[str, str]], values: dict[str, str]
) -> None:
    (lasting.home / FILE_NAME).unlink(missing_ok=True)
    text = "".join(f"${{{name}}}{between}" for name, between in parts)
    if any("\ud800" <= c <= "\udfff" for c in text):
        return
    lasting.write({"mcpServers": {"one": {"command": "x", "args": [text]}}})
    (spec,) = lasting.load(environment=values).servers
    assert spec.args == ("".join(values[name] + between for name, between in parts),)


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${NOT_SET}", "needs the variable NOT_SET, which is not set: set it, or write ${NOT_SET:-default}"),
        ("${env:NOT_SET}", "needs the variable NOT_SET, which is not set: set it, or write ${NOT_SET:-default}"),
        ("${input:not-set}", "asks for the input not-set: give it in the environment variable NOT_SET"),
        ("${command:x.y}", "uses ${command:…}, which only the client it was written for can fill in"),
        ("${NOT_SET:-${TOKEN}}", "has a variable in the default of NOT_SET, which would not be filled in"),
        ("${NUL}", "must not have a NUL character"),
    ],
)
def test_a_variable_that_cannot_be_filled_in_is_named(place: Place, text: str, said: str) -> None:
    assert place.problems(command=text, args=["a", text], env={"A": text}, cwd=text) == [
        f"command {said}",
        f"args[1] {said}",
        f"env.A {said}",
        f"cwd {said}",
    ]
    url = f"https://example.com/{text}"
    assert place.problems(url=url, headers={"A": text}) == [f"url {said}", f"headers.A {said}"]


# What is wrong


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, [" needs a command (a program to start) or a url (a server to reach)"]),
        ({"type": "stdio"}, [" has no command, which a server of type stdio needs"]),
        ({"type": "http", "command": "x"}, [" has no url, which a server of type http needs"]),
        ({"type": "ws", "url": "ws://x"}, ["type must be stdio, http (or streamable-http) or sse"]),
        ({"type": 1}, ["type must be stdio, http (or streamable-http) or sse"]),
        ({"command": " "}, ["command must not be empty"]),
        ({"command": ["x"]}, ["command must be a text, not a list"]),
        ({"command": "x", "args": "-y x"}, ["args must be a list of texts, not a text"]),
        ({"command": "x", "args": 1}, ["args must be a list of texts, not a number"]),
        ({"command": "x", "args": ["a", None, {}]}, ["args[1] must be a text, not null", "args[2] must be a text"]),
        ({"command": "x", "env": ["A=b"]}, ["env must be an object with a text under each name, not a list"]),
        ({"command": "x", "env": {"A": {}}}, ["env.A must be a text, not an object"]),
        ({"command": "x", "env": {"A=B": "c", "": "d"}}, ['env["A=B"] has a name that cannot', 'env[""] has a name']),
        ({"command": "x", "cwd": True}, ["cwd must be a text, not true or false"]),
        ({"command": "x", "disabled": "yes"}, ["disabled must be true or false, not a text"]),
        ({"command": "x", "includeTools": "a"}, ["includeTools must be a list of texts, not a text"]),
        ({"command": "x", "excludeTools": {"a": True}}, ["excludeTools must be a list of texts, not an object"]),
        ({"url": "https://"}, ["url must be an http or https address with a host, such as https://example.com/mcp"]),
        ({"url": "ftp://example.com"}, ["url must be an http or https address with a host"]),
        ({"url": "example.com/mcp"}, ["url must be an http or https address with a host"]),
        ({"url": "https://example.com:99999"}, ["url must be an http or https address with a host"]),
        ({"url": "https://[::1"}, ["url must be an http or https address with a host"]),
        ({"url": "https://example.com/a b"}, ["url must be an http or https address with a host"]),
        ({"url": "https://example.com", "headers": {"A B": "c"}}, ['headers["A B"] has a name that cannot be used']),
        (
            {"url": "https://example.com", "headers": {"A": "${BREAK}"}},
            ["headers.A must be one line of printable ASCII"],
        ),
        ({"url": "https://example.com", "headers": {"A": "ключ"}}, ["headers.A must be one line of printable ASCII"]),
    ],
)
def test_what_is_wrong_with_an_entry_is_said(place: Place, entry: dict[str, Any], said: list[str]) -> None:
    found = place.problems(**entry)
    assert len(found) == len(said)
    assert all(f.startswith(s) for f, s in zip(found, said, strict=True)), found


@pytest.mark.req("G-01", "X-03")
def test_an_error_names_file_key_and_line(place: Place) -> None:
    error = place.error(
        '{\n  // ours\n  "mcpServers": {\n    "git hub": {\n      "command": "x",\n      "args":\n 7}}}'
    )
    file = str(place.folder / FILE_NAME)
    key = 'mcpServers["git hub"].args'
    assert error.message == f"{file}, line 6: {key} must be a list of texts, not a number"
    assert {k: v for k, v in error.details.items() if k != "problems"} == {"file": file, "key": key, "line": 6}


@pytest.mark.req("G-01", "X-03")
def test_what_is_no_json_is_told_with_line_and_column(place: Place) -> None:
    error = place.error('{"mcpServers": {\n  "a": {"command": "x"}\n  "b": {}\n}}')
    assert error.message == f'{place.folder / FILE_NAME}, line 3, column 3: expected "," or "}}", found \'"\''
    assert (error.details["key"], error.details["line"]) == ("mcpServers", 3)


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "line 1: the file must hold an object, not a list"),
        ("null", "line 1: the file must hold an object, not null"),
        ('{"mcp_servers": {}}', "line 1: mcpServers is missing (or, as VS Code has them, servers or mcp.servers)"),
        ('{"mcp": true}', "line 1: mcpServers is missing (or, as VS Code has them, servers or mcp.servers)"),
        ('{"mcpServers": []}', "line 1: mcpServers must be an object with a server under each name, not a list"),
        ('{"mcpServers": {\n"a": "npx"}}', "line 2: mcpServers.a must be an object, not a text"),
        (
            '{"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": "y"}}}',
            "line 2: mcpServers.a is there twice: again in line 3",
        ),
        (
            '{"mcpServers": {"a": {"command": "x"}},\n"servers": {"a": {"command": "y"}}}',
            "line 2: servers.a is named already by mcpServers.a in line 1",
        ),
        ("[" * 5000, "line 1, column 101: nested more than 100 deep"),
    ],
)
def test_a_file_of_another_shape_is_refused(place: Place, content: str, said: str) -> None:
    assert place.error(content).message == f"{place.folder / FILE_NAME}, {said}"


@pytest.mark.req("G-01", "X-03")
def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_files(place: Place) -> None:
    place.write('{"mcpServers": {', at_home=True)
    servers = {f"s{n}": {"command": "x", "args": n} for n in range(6)} | {"bad__name": {"command": "x"}}
    error = place.error({"mcpServers": servers})
    told = error.message.split("\n")
    assert len(told) == 6
    assert told[0].startswith(f"{place.home / FILE_NAME}, line 1, column 17: expected a key")
    assert told[1].endswith("line 5: mcpServers.s0.args must be a list of texts, not a number")
    assert told[5] == "and 3 more"
    assert len(error.details["problems"]) == 8
    assert (
        'mcpServers.bad__name is no usable name: a server\'s name has 1 to 64 characters, without "__"'
        in (error.details["problems"][-1]["message"])
    )


# Names


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    "name", ["", "a__b", "a/b", "a,b", " a", "a ", "a\n", "a\tb", "a\x85b", "x" * 65, "a_", "\u2028"]
)
def test_a_name_that_would_break_something_is_refused(place: Place, name: str) -> None:
    assert "is no usable name" in place.error({"mcpServers": {name: {"command": "x"}}}).message


@pytest.mark.req("G-01")
@quick
@given(
    server=st.text(st.sampled_from("_aé .-👩\u200d"), min_size=1, max_size=5),
    tool=st.text(st.sampled_from("_aé .-"), min_size=1, max_size=5),
)
def test_the_server_can_be_told_from_the_id_of_a_tool(lasting: Place, server: str, tool: str) -> None:
    (lasting.home / FILE_NAME).unlink(missing_ok=True)
    lasting.write({"mcpServers": {server: {"command": "x"}}})
    try:
        (spec,) = lasting.load().servers
    except Invalid:
        assert "__" in server or server.endswith("_") or server != server.strip()
    else:
        assert Item(spec.name, tool).id.partition("__") == (server, "__", tool)


# Whatever it says

SECRET = "hunter2-hunter2"
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "x", "https://e.com", "${TOKEN}"])
)
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=4
)
SECRETS = st.dictionaries(
    st.sampled_from(["A", "B C", "", "=", "X-Key"]),
    st.sampled_from([SECRET, f"{SECRET}\r\n", f"{SECRET}${{NOT_SET}}", f"\0{SECRET}", [SECRET], {"a": SECRET}]),
    max_size=3,
)
KEYS = (
    "type transport command args cwd url httpUrl serverUrl envFile disabled enabled includeTools excludeTools gallery"
)
ENTRIES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(KEYS.split(), ANYTHING) | {"env": SECRETS | ANYTHING, "headers": SECRETS | ANYTHING}
)


@pytest.mark.req("G-01", "X-03", "X-04")
@quick
@given(entries=st.dictionaries(st.sampled_from(["a", "b", "c__d"]), ENTRIES | ANYTHING, max_size=2))
def test_any_file_gives_servers_or_one_error_that_keeps_secrets(lasting: Place, entries: dict[str, Any]) -> None:
    (lasting.home / FILE_NAME).unlink(missing_ok=True)
    text = json.dumps({"mcpServers": entries}, indent=1).replace("Infinity", "1").replace("NaN", "1")
    lasting.write(text)
    try:
        servers = lasting.load().servers
    except Invalid as error:
        told = json.dumps(error.to_envelope())
        assert SECRET not in told
        assert "s3cret" not in told
        for problem in error.details["problems"]:
            assert f"line {problem['line']}: {problem['key']} " in problem["message"]
    else:
        assert {s.name for s in servers} <= entries.keys()
        assert SECRET not in repr(servers)
