"""The servers in a configuration file, of ours or of another client, and the errors in a file that is wrong."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.configuration.files import FILE_NAME, Configuration, load_configuration
from toolscript.configuration.text_files import MAX_FILE_BYTES
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Invalid
from toolscript.domain.servers import OAuthSpec, ServerSpec, Transport

ENVIRONMENT = {"TOKEN": "s3cret", "EMPTY": "", "NESTED": "${TOKEN}", "BREAK": "a\r\nb", "NUL": "a\0b", "KEY_2": "k"}
quick = settings(max_examples=scale_examples(150), deadline=None)


class ConfigurationFolders:
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
        """The messages about an entry, without file and line."""
        error = self.error({"mcpServers": {"one": entry}})
        pattern = r"^.*?: mcpServers\.one\.?(.*) \(line \d+\)$"
        return [re.sub(pattern, r"\1", p["message"]) for p in error.details["problems"]]


@pytest.fixture
def place(tmp_path: Path) -> ConfigurationFolders:
    return ConfigurationFolders(tmp_path)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> ConfigurationFolders:
    """For properties, which try many files in one place."""
    return ConfigurationFolders(tmp_path_factory.mktemp("configuration"))


# Where files are


@pytest.mark.req("G-01")
def test_without_files_no_servers_are_loaded_and_the_files_are_watched(place: ConfigurationFolders) -> None:
    assert place.load() == Configuration((), (place.home / FILE_NAME, place.folder / FILE_NAME))


@pytest.mark.req("G-01")
def test_a_home_folder_that_is_the_working_folder_is_read_once(place: ConfigurationFolders) -> None:
    place.write({"mcpServers": {"a": {"command": "x"}}}, at_home=True)
    loaded = load_configuration(home=place.home, folder=place.home, environment={})
    assert ([s.name for s in loaded.servers], loaded.files) == (["a"], (place.home / FILE_NAME,))


@pytest.mark.req("G-01")
@quick
@given(
    home=st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["x", "y", "off"])),
    project=st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["x", "y", "off"])),
)
def test_the_later_file_wins_per_server(
    lasting: ConfigurationFolders, home: dict[str, str], project: dict[str, str]
) -> None:
    for commands, at_home in ((home, True), (project, False)):
        entries = {name: {"command": command, "disabled": command == "off"} for name, command in commands.items()}
        lasting.write({"mcpServers": entries}, at_home=at_home)
    wanted = {name: command for name, command in (home | project).items() if command != "off"}
    assert {s.name: s.command for s in lasting.load().servers} == wanted


@pytest.mark.req("G-01")
def test_a_replaced_entry_needs_no_variables(place: ConfigurationFolders) -> None:
    place.write({"mcpServers": {"a": {"url": "https://example.com/${NOT_SET}"}}}, at_home=True)
    place.write({"mcpServers": {"a": {"command": "x"}}})
    assert [s.command for s in place.load().servers] == ["x"]


@pytest.mark.req("G-01")
def test_a_named_file_is_the_only_one_read(place: ConfigurationFolders) -> None:
    place.write({"mcpServers": {"a": {"command": "x"}}})
    other = place.write({"mcpServers": {"b": {"command": "y"}}}, "other.json")
    for path in (other, Path("other.json")):
        loaded = place.load(path)
        assert ([s.name for s in loaded.servers], loaded.files) == (["b"], (other,))
    at_home = place.write({"mcpServers": {}}, "mine.json", at_home=True)
    assert place.load(Path("~/mine.json")).files == (at_home,)


@pytest.mark.req("G-01", "X-03")
def test_a_named_file_that_does_not_exist_is_an_error(place: ConfigurationFolders) -> None:
    missing = place.folder / "missing.json"
    error = place.error(path=missing)
    assert error.message == f"{missing}: no such file"
    assert error.details == {
        "file": str(missing),
        "key": "",
        "line": None,
        "problems": [{"file": str(missing), "key": "", "line": None, "message": error.message}],
    }


@pytest.mark.req("G-01", "X-03")
def test_a_file_that_cannot_be_read_is_named(place: ConfigurationFolders) -> None:
    assert place.error(path=place.folder).message == f"{place.folder}: cannot be read: is a directory"
    file = place.folder / FILE_NAME
    file.symlink_to(file)
    assert place.error().message == f"{file}: cannot be read: too many levels of symbolic links"
    file.unlink()
    file.write_bytes(b'{\n"mcpServers": "\xff"}')
    assert place.error().message == f"{file}: not valid UTF-8 (line 2)"
    file.write_bytes(json.dumps({"mcpServers": {}}).encode("utf-16-le"))
    assert place.error().message == f"{file}: contains NUL characters"
    file.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    assert place.error().message == f"{file}: larger than 5 MB"


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
def test_files_of_other_clients_are_read_unchanged(
    place: ConfigurationFolders, content: object, found: list[tuple[str, Transport]]
) -> None:
    file = place.write(content, "theirs.json")
    assert [(s.name, s.transport) for s in place.load(file).servers] == found


@pytest.mark.req("G-01")
def test_numbers_and_booleans_become_strings_with_their_source_text(place: ConfigurationFolders) -> None:
    place.write(CLAUDE_DESKTOP)
    notes = place.load().servers[1]
    assert notes.args == ("notes", "8080", "true", "3.10")
    assert notes.env == {"PORT": "3000", "DEBUG": "false"}


@pytest.mark.req("G-01")
@pytest.mark.parametrize("folder", [".vscode", ".cursor"])
def test_in_a_clients_folder_paths_are_relative_to_the_project(place: ConfigurationFolders, folder: str) -> None:
    local = place.load(place.write(VS_CODE, f"{folder}/mcp.json")).servers[1]
    assert local.command == f"{place.home}/bin/x"
    assert local.args == (f"{place.folder}{os.sep}y",)
    assert local.env == {"KEY": "k"}
    assert local.cwd == str(place.folder / "sub")


# What an entry says


@pytest.mark.req("G-01")
def test_a_server_with_a_command(place: ConfigurationFolders) -> None:
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
def test_a_server_with_a_url(place: ConfigurationFolders) -> None:
    spec = place.spec(type="sse", url="http://[::1]:8080/x?y=${TOKEN}", headers={"X-Key": " ${TOKEN} ", "X-N": 1})
    assert spec == ServerSpec(
        "one", Transport.SSE, url="http://[::1]:8080/x?y=s3cret", headers={"X-Key": "s3cret", "X-N": "1"}
    )
    assert "s3cret" not in repr(spec)


@pytest.mark.req("O-01")
def test_an_api_has_a_document_and_an_address(place: ConfigurationFolders) -> None:
    spec = place.spec(openapi="pets.yaml", url="https://example.com/v1", headers={"X-Key": "${TOKEN}"})
    file, url = str(place.folder / "pets.yaml"), "https://example.com/sse"
    expected = ServerSpec("one", Transport.OPENAPI, openapi=file, url="https://example.com/v1")
    assert spec == replace(expected, headers={"X-Key": "s3cret"})
    assert place.spec(openapi=url) == ServerSpec("one", Transport.OPENAPI, openapi=url, url=url)
    digests = {place.spec(openapi=each, url=url).digest for each in ("a.yaml", "b.yaml", url)}
    assert len(digests) == 3
    assert "example.com" not in repr(spec)


@pytest.mark.req("G-01")
@pytest.mark.parametrize(
    ("cwd", "folder"),
    [(None, None), ("", None), ("${EMPTY}", None), ("~", "home"), ("sub", "project/sub"), ("..", "project/..")],
)
def test_a_folder_is_relative_to_the_file(place: ConfigurationFolders, cwd: str | None, folder: str | None) -> None:
    assert place.spec(command="x", cwd=cwd).cwd == (None if folder is None else str(place.folder.parent / folder))
    assert place.spec(command="x", cwd="/tmp").cwd == "/tmp"


@pytest.mark.req("G-01")
def test_type_decides_between_a_command_and_a_url(place: ConfigurationFolders) -> None:
    both = {"command": "x", "url": "https://example.com"}
    assert place.spec(type="stdio", **(both | {"url": ""})).transport is Transport.STDIO
    assert place.spec(type="http", **both).transport is Transport.HTTP
    assert place.problems(**both) == [": has both command and url: remove one, or set type"]


@pytest.mark.req("G-01")
def test_an_environment_file_is_read_and_watched_and_env_overrides_it(place: ConfigurationFolders) -> None:
    lines = ["\ufeffFIRST=1\r", "# X=1", "", "export A = 'x # y' # note", 'B=""', "C=a b # note", "D=#1", "E='open"]
    file = place.write("\n".join([*lines, "no line", "=x", "F=a=b"]), "my.env")
    spec = place.spec(command="x", envFile="my.env", env={"F": "mine"})
    assert spec.env == {"FIRST": "1", "A": "x # y", "B": "", "C": "a b", "D": "#1", "E": "'open", "F": "mine"}
    assert place.load().files[-1] == file
    assert place.spec(command="x", envFile="missing.env").env == {}
    assert place.load().files[-1] == place.folder / "missing.env"
    assert place.problems(command="x", envFile=".") == [f"envFile: {place.folder}: cannot be read: is a directory"]


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
def test_variables_are_replaced_once(place: ConfigurationFolders, text: str, filled: str) -> None:
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
def test_a_variable_is_replaced_by_its_value(
    lasting: ConfigurationFolders, parts: list[tuple[str, str]], values: dict[str, str]
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
    ("text", "message"),
    [
        ("${NOT_SET}", "variable NOT_SET is not set: set it, or write ${NOT_SET:-default}"),
        ("${env:NOT_SET}", "variable NOT_SET is not set: set it, or write ${NOT_SET:-default}"),
        ("${input:not-set}", "needs the input not-set: set the environment variable NOT_SET"),
        ("${command:x.y}", "cannot resolve ${command:…}: only the client that defines it can"),
        ("${NOT_SET:-${TOKEN}}", "variables are not allowed in the default of NOT_SET"),
        ("${NUL}", "must not contain a NUL character"),
    ],
)
def test_a_variable_that_cannot_be_resolved_is_named(place: ConfigurationFolders, text: str, message: str) -> None:
    assert place.problems(command=text, args=["a", text], env={"A": text}, cwd=text) == [
        f"command: {message}",
        f"args[1]: {message}",
        f"env.A: {message}",
        f"cwd: {message}",
    ]
    url = f"https://example.com/{text}"
    assert place.problems(url=url, headers={"A": text}) == [f"url: {message}", f"headers.A: {message}"]


# What is wrong


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {},
            [": needs a command (a program to start), a url (a server to connect to) or an openapi (an API's"],
        ),
        ({"openapy": "https://example.com/a"}, ['openapy: unknown key, did you mean "openapi"?']),
        ({"openapi": "a.yaml"}, ["openapi: is a file: add the `url` that calls go to, such as https://example.com/v1"]),
        ({"openapi": "ftp://x/a"}, ["openapi: must be an http or https URL with a host"]),
        ({"openapi": "https://me:pw@x.org"}, ["openapi: must have no user and password: use `headers`"]),
        ({"openapi": "a.yaml", "url": "https://me@x.org"}, ["url: must have no user and password: use `headers`"]),
        ({"openapi": 7, "url": "https://example.com"}, ["openapi: must be a string, not a number"]),
        (
            {"type": "openapi", "command": "x"},
            [": a server of type openapi needs an openapi: the file or URL of its"],
        ),
        ({"openapi": "https://x.org", "command": "x"}, [": has both command and openapi: remove one, or set type"]),
        ({"comand": "x"}, ['comand: unknown key, did you mean "command"?']),
        ({"URL": "https://example.com"}, ['URL: unknown key, did you mean "url"?']),
        ({"command": "x", "envs": {}, "Cwd": "."}, ['envs: unknown key, did you mean "env"?', "Cwd: unknown key"]),
        ({"command": "x", "env_file": ".env"}, ['env_file: unknown key, did you mean "envFile"?']),
        ({"command": "x", "exclude-tools": ["a"]}, ['exclude-tools: unknown key, did you mean "excludeTools"?']),
        ({"command": "x", "disable": True}, ['disable: unknown key, did you mean "disabled"?']),
        ({"url": "https://example.com", "header": {}}, ['header: unknown key, did you mean "headers"?']),
        ({"type": "stdio"}, [": a server of type stdio needs a command"]),
        ({"type": "http", "command": "x"}, [": a server of type http needs a url"]),
        ({"type": "ws", "url": "ws://x"}, ["type: must be stdio, http (or streamable-http), sse or openapi"]),
        ({"command": " "}, ["command: must not be empty"]),
        ({"command": ["x"]}, ["command: must be a string, not a list"]),
        ({"command": "x", "args": "-y x"}, ["args: must be a list of strings, not a string"]),
        (
            {"command": "x", "args": ["a", None, {}]},
            ["args[1]: must be a string, not null", "args[2]: must be a string"],
        ),
        ({"command": "x", "env": ["A=b"]}, ["env: must be an object of strings by name, not a list"]),
        ({"command": "x", "env": {"A": {}}}, ["env.A: must be a string, not an object"]),
        ({"command": "x", "env": {"A=B": "c", "": "d"}}, ['env["A=B"]: invalid name in env', 'env[""]: invalid name']),
        ({"command": "x", "cwd": True}, ["cwd: must be a string, not a boolean"]),
        ({"command": "x", "disabled": "yes"}, ["disabled: must be true or false, not a string"]),
        (
            {"command": "x", "start": "later"},
            ['start: must be "eager" (with the gateway) or "lazy" (with'],
        ),
        (
            {"command": "x", "trust": "chnaged"},
            ['trust: must be "open", "changed", "all" or "review"; did you mean "changed"?'],
        ),
        (
            {"command": "x", "idleMinutes": -1},
            ["idleMinutes: must be a number of minutes from 0 (never stop it)"],
        ),
        ({"command": "x", "idleMinutes": 10_081}, ["idleMinutes: must be a number of minutes from 0"]),
        ({"command": "x", "idleMinutes": "5"}, ["idleMinutes: must be a number of minutes from 0"]),
        ({"command": "x", "idle_minutes": 5}, ['idle_minutes: unknown key, did you mean "idleMinutes"?']),
        ({"command": "x", "includeTools": "a"}, ["includeTools: must be a list of strings, not a string"]),
        ({"command": "x", "excludeTools": {"a": True}}, ["excludeTools: must be a list of strings, not an object"]),
        ({"url": "https://"}, ["url: must be an http or https URL with a host, such as https://example.com/mcp"]),
        ({"url": "example.com/mcp"}, ["url: must be an http or https URL with a host"]),
        ({"url": "https://example.com:99999"}, ["url: must be an http or https URL with a host"]),
        ({"url": "https://[::1"}, ["url: must be an http or https URL with a host"]),
        ({"url": "https://example.com", "headers": {"A B": "c"}}, ['headers["A B"]: invalid name in headers']),
        (
            {"url": "https://example.com", "headers": {"A": "${BREAK}"}},
            ["headers.A: must be one line of printable ASCII"],
        ),
        ({"url": "https://example.com", "headers": {"A": "ключ"}}, ["headers.A: must be one line of printable ASCII"]),
    ],
)
def test_a_wrong_entry_is_reported_with_its_key(
    place: ConfigurationFolders, entry: dict[str, Any], expected: list[str]
) -> None:
    found = place.problems(**entry)
    assert len(found) == len(expected)
    assert all(f.startswith(s) for f, s in zip(found, expected, strict=True)), found


@pytest.mark.req("G-01")
@pytest.mark.parametrize(
    ("entry", "is_lazy", "idle_seconds"),
    [
        ({}, False, None),
        ({"start": "eager", "idleMinutes": 5}, False, 300),
        ({"start": "lazy"}, True, 600),
        ({"start": "lazy", "idleMinutes": 0.5}, True, 30),
        ({"start": "lazy", "idleMinutes": 0}, True, None),
        ({"start": None, "idleMinutes": None}, False, None),
    ],
)
def test_an_entry_says_when_its_server_runs(
    place: ConfigurationFolders, entry: dict[str, Any], is_lazy: bool, idle_seconds: float | None
) -> None:
    spec = place.spec(command="x", **entry)
    assert (spec.is_lazy, spec.idle_seconds) == (is_lazy, idle_seconds)
    assert spec.digest == place.spec(command="x").digest


@pytest.mark.req("G-15")
def test_an_entry_says_which_definitions_of_its_server_are_trusted(place: ConfigurationFolders) -> None:
    assert place.spec(command="x").trust is None
    assert place.spec(command="x", trust="all").trust == "all"
    assert place.spec(command="x", trust="all").digest != place.spec(command="x").digest
    assert place.spec(command="x", trust=True).trust is None  # another client: whether it asks before calls


@pytest.mark.req("G-01")
def test_keys_of_other_clients_are_ignored(place: ConfigurationFolders) -> None:
    keys = (
        "alwaysAllow autoApprove timeout description tools gallery version dev oauth authProviderType "
        "transportType disabledTools enabledTools name id tags note comment headersHelper auth icon startup_timeout_sec"
    ).split()
    assert place.spec(command="x", **dict.fromkeys(keys, "anything")).command == "x"


@pytest.mark.req("G-01", "X-03")
def test_an_error_names_file_key_and_line(place: ConfigurationFolders) -> None:
    error = place.error(
        '{\n  // ours\n  "mcpServers": {\n    "git hub": {\n      "command": "x",\n      "args":\n 7}}}'
    )
    file = str(place.folder / FILE_NAME)
    key = 'mcpServers["git hub"].args'
    assert error.message == f"{file}: {key}: must be a list of strings, not a number (line 6)"
    assert {k: v for k, v in error.details.items() if k != "problems"} == {"file": file, "key": key, "line": 6}


@pytest.mark.req("G-01", "X-03")
def test_invalid_json_is_reported_with_line_and_column(place: ConfigurationFolders) -> None:
    error = place.error('{"mcpServers": {\n  "a": {"command": "x"}\n  "b": {}\n}}')
    assert error.message == f'{place.folder / FILE_NAME}: expected "," or "}}", found \'"\' (line 3, column 3)'
    assert (error.details["key"], error.details["line"]) == ("mcpServers", 3)


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "the file must contain an object, not a list (line 1)"),
        ("null", "the file must contain an object, not null (line 1)"),
        ('{"mcp_servers": {}}', 'mcp_servers: unknown key, did you mean "mcpServers"? (line 1)'),
        ('{"server": {}}', 'server: unknown key, did you mean "servers"? (line 1)'),
        ('{"mcp": {\n"Servers": {}}}', 'mcp.Servers: unknown key, did you mean "servers"? (line 2)'),
        ('{"tools": {}}', "missing key: mcpServers (or servers or mcp.servers, as in VS Code) (line 1)"),
        ('{"mcp": true}', "missing key: mcpServers (or servers or mcp.servers, as in VS Code) (line 1)"),
        ('{"mcpServers": []}', "mcpServers: must be an object of servers by name, not a list (line 1)"),
        ('{"mcpServers": {\n"a": "npx"}}', "mcpServers.a: must be an object, not a string (line 2)"),
        (
            '{"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": "y"}}}',
            "mcpServers.a: duplicate key, again in line 3 (line 2)",
        ),
        (
            '{"mcpServers": {"a": {"command": "x"}},\n"servers": {"a": {"command": "y"}}}',
            "servers.a: already defined as mcpServers.a in line 1 (line 2)",
        ),
        ("[" * 5000, "nested more than 100 deep (line 1, column 101)"),
    ],
)
def test_a_file_of_the_wrong_shape_is_refused(place: ConfigurationFolders, content: str, message: str) -> None:
    assert place.error(content).message == f"{place.folder / FILE_NAME}: {message}"


@pytest.mark.req("G-01", "X-03")
def test_all_problems_are_reported_at_once_in_the_order_of_the_files(place: ConfigurationFolders) -> None:
    place.write('{"mcpServers": {', at_home=True)
    servers = {f"s{n}": {"command": "x", "args": n} for n in range(6)} | {"bad__name": {"command": "x"}}
    error = place.error({"mcpServers": servers})
    messages = error.message.split("\n")
    assert len(messages) == 6
    assert messages[0].startswith(f"{place.home / FILE_NAME}: expected a key")
    assert messages[1].endswith(": mcpServers.s0.args: must be a list of strings, not a number (line 5)")
    assert messages[5] == "and 3 more"
    assert len(error.details["problems"]) == 8
    assert (
        'mcpServers.bad__name: invalid server name: use 1 to 64 characters without "__"'
        in (error.details["problems"][-1]["message"])
    )


# Names


@pytest.mark.req("G-01", "X-03")
@pytest.mark.parametrize(
    "name", ["", "a__b", "a/b", "a,b", " a", "a ", "a\n", "a\tb", "a\x85b", "x" * 65, "a_", "\u2028"]
)
def test_an_invalid_server_name_is_refused(place: ConfigurationFolders, name: str) -> None:
    assert "invalid server name" in place.error({"mcpServers": {name: {"command": "x"}}}).message


@pytest.mark.req("G-01")
@quick
@given(
    server=st.text(st.sampled_from("_aé .-👩\u200d"), min_size=1, max_size=5),
    tool=st.text(st.sampled_from("_aé .-"), min_size=1, max_size=5),
)
def test_the_id_of_a_tool_contains_the_server_unambiguously(
    lasting: ConfigurationFolders, server: str, tool: str
) -> None:
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
    {},
    optional=dict.fromkeys(KEYS.split(), ANYTHING)
    | {"env": SECRETS | ANYTHING, "headers": SECRETS | ANYTHING, "oauth": SECRETS | ANYTHING},
)


@pytest.mark.slow
@pytest.mark.req("G-01", "X-03", "X-04")
@quick
@given(entries=st.dictionaries(st.sampled_from(["a", "b", "c__d"]), ENTRIES | ANYTHING, max_size=2))
def test_any_file_loads_or_raises_one_error_without_secrets(
    lasting: ConfigurationFolders, entries: dict[str, Any]
) -> None:
    (lasting.home / FILE_NAME).unlink(missing_ok=True)
    text = json.dumps({"mcpServers": entries}, indent=1).replace("Infinity", "1").replace("NaN", "1")
    lasting.write(text)
    try:
        servers = lasting.load().servers
    except Invalid as error:
        text_of_error = json.dumps(error.to_envelope())
        assert SECRET not in text_of_error
        assert "s3cret" not in text_of_error
        for problem in error.details["problems"]:
            assert f": {problem['key']}: " in problem["message"]
            assert problem["message"].endswith(f" (line {problem['line']})")
    else:
        assert {s.name for s in servers} <= entries.keys()
        assert SECRET not in repr(servers)


@pytest.mark.req("G-01", "G-11", "X-03", "X-04")
def test_a_login_can_be_configured(place: ConfigurationFolders) -> None:
    oauth = {
        "clientId": "me",
        "clientSecret": SECRET,
        "scopes": ["read", "write"],
        "redirectPort": 33418,
        "perUser": True,
    }
    spec = place.spec(url="https://e.com", oauth=oauth)
    assert spec.oauth == OAuthSpec("me", SECRET, ("read", "write"), 33418, per_user=True)
    assert SECRET not in repr(spec)
    assert place.spec(url="https://e.com", oauth={"callbackPort": 8080, "other": 1}).oauth.redirect_port == 8080
    for wrong, problem in (
        ([], "oauth: must be an object, not a list"),
        ({"clientid": "me"}, 'oauth.clientid: unknown key, did you mean "clientId"?'),
        ({"clientSecret": SECRET}, "oauth: has a clientSecret and no clientId"),
        ({"redirectPort": 70000}, "oauth.redirectPort: must be a whole number from 1 to 65535"),
        ({"scopes": "read"}, "oauth.scopes: must be a list of strings, not a string"),
    ):
        (message,) = place.problems(url="https://e.com", oauth=wrong)
        assert message.endswith(problem)
        assert SECRET not in message
