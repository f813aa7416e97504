"""Plans that move servers of every client's file into Toolscript's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.configuration.client_files import ClientFile
from toolscript.configuration.jsonc import parse_jsonc
from toolscript.configuration.setup_plan import FileChange, FoundFile, assign_names, find_servers, plan_changes

pytestmark = pytest.mark.req("G-21")

quick = settings(max_examples=scale_examples(60), deadline=None)
COMMAND = ["/opt/toolscript", "mcp"]
PLACES: dict[str, tuple[str, ...]] = {
    "claude-desktop": ("mcpServers",),
    "claude-code": ("mcpServers",),
    "cursor": ("mcpServers",),
    "vscode": ("servers",),
    "windsurf": ("mcpServers",),
}


class Clients:
    """A home folder with the files of clients."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.target = home / ".toolscript.json"
        self.sources: list[ClientFile] = []

    def write(self, client: str, content: str | Mapping[str, Any], *, project: bool = False, name: str = "") -> Path:
        file = self.home / f"{name or client}.json"
        text = content if isinstance(content, str) else json.dumps(content, indent=2)
        file.write_text(text, encoding="utf-8", newline="")
        place = ("mcp", "servers") if name == "settings" else PLACES[client]
        self.sources.append(ClientFile(client, file, place, self.home / "shop" if project else None))
        return file

    def find(self, **environment: str) -> list[FoundFile]:
        own = frozenset({"http://127.0.0.1:3780/mcp"})
        found = [find_servers(s, home=self.home, environment=environment, own_urls=own) for s in self.sources]
        text = self.target.read_text() if self.target.exists() else None
        return assign_names([each for each in found if each], parse_jsonc(text).root if text else None)

    def plan(self, found: Sequence[FoundFile] | None = None) -> dict[Path, FileChange]:
        text = self.target.read_text() if self.target.exists() else None
        changes = plan_changes(found or self.find(), self.target, text, COMMAND)
        return {change.file: change for change in changes}

    def apply(self) -> dict[str, Any]:
        """Writes the changes; returns the servers of Toolscript's configuration."""
        for change in self.plan().values():
            change.file.write_text(change.after, encoding="utf-8", newline="")
        servers: dict[str, Any] = read(self.target.read_text())["mcpServers"]
        return servers


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    return Clients(tmp_path)


def read(text: str) -> Any:
    return parse_jsonc(text).root.to_python()


def reasons(found: Sequence[FoundFile]) -> dict[str, str]:
    return {server.name: server.reason for each in found for server in each.servers}


@pytest.mark.parametrize("client", PLACES)
def test_the_servers_of_each_client_move_and_toolscript_takes_their_place(clients: Clients, client: str) -> None:
    (key,) = PLACES[client]
    entries = {
        "time": {"command": "uvx", "args": ["time"], "env": {"K": "v"}},
        "web": {"url": "https://example.com/mcp"},
    }
    file = clients.write(client, {"first": 1, key: entries, "last": [2]})
    assert clients.apply() == entries
    typed = {"type": "stdio"} if client in {"claude-code", "vscode"} else {}
    loaded = {"alwaysLoad": True} if client == "claude-code" else {}
    own = {**typed, **loaded, "command": "/opt/toolscript", "args": ["mcp"]}
    assert json.loads(file.read_text()) == {"first": 1, key: {"toolscript": own}, "last": [2]}


def test_settings_of_vs_code_keep_their_comments_and_commas(clients: Clients) -> None:
    before = """{
    // my editor
    "editor.fontSize": 14,
    "mcp": {
        "inputs": [ { "id": "key", "type": "promptString" }, ],
        "servers": {
            // from the gallery
            "acme/docs": {
                "command": "docs", // fast
                "env": { "KEY": "${input:key}", },
            },
        },
    },
}
"""
    file = clients.write("vscode", before, name="settings")
    servers = clients.apply()
    assert servers == {"acme-docs": {"command": "docs", "env": {"KEY": "${KEY:-}"}}}
    assert "// fast" in clients.target.read_text()
    after = file.read_text()
    for kept in ("// my editor", '{ "id": "key", "type": "promptString" }, ]', "// from the gallery"):
        assert kept in after
    assert read(after)["mcp"]["servers"]["toolscript"]["env"] == {"KEY": "${input:key}"}


def test_claude_code_gets_toolscript_once_for_all_projects(clients: Clients) -> None:
    projects = {"/p": {"mcpServers": {"db": {"command": "db"}}, "history": ["x"]}, "/q": {"mcpServers": {}}}
    file = clients.write("claude-code", {"projects": projects, "numStartups": 7})
    assert clients.apply() == {"db": {"command": "db", "cwd": "/p"}}
    after = json.loads(file.read_text())
    assert list(after["mcpServers"]) == ["toolscript"]
    assert after["projects"] == {"/p": {"mcpServers": {}, "history": ["x"]}, "/q": {"mcpServers": {}}}
    assert after["numStartups"] == 7
    assert after["mcpServers"]["toolscript"]["alwaysLoad"] is True
    assert clients.plan() == {}


def test_equal_servers_are_one_and_different_ones_get_distinct_names(clients: Clients) -> None:
    for client, token in {"claude-desktop": "a", "cursor": "a", "windsurf": "b"}.items():
        clients.write(client, {"mcpServers": {"github": {"command": "gh", "env": {"TOKEN": token}}}})
    clients.target.write_text('{"mcpServers": {"github": {"command": "gh", "env": {"TOKEN": "c"}}}}')
    servers = clients.apply()
    assert {name: entry["env"]["TOKEN"] for name, entry in servers.items()} == {
        "github": "c",
        "github-claude-desktop": "a",
        "github-windsurf": "b",
    }


def test_a_second_run_changes_nothing(clients: Clients) -> None:
    clients.write("cursor", {"mcpServers": {"time": {"command": "uvx"}}})
    clients.apply()
    assert clients.plan() == {}


def test_a_server_that_is_added_later_moves_without_a_second_toolscript(clients: Clients) -> None:
    file = clients.write("cursor", {"mcpServers": {"time": {"command": "uvx"}}})
    clients.apply()
    content = json.loads(file.read_text())
    content["mcpServers"]["git"] = {"command": "git-mcp", "env": {"T": "${env:TOKEN}"}}
    file.write_text(json.dumps(content))
    assert list(clients.apply()) == ["time", "git"]
    own = json.loads(file.read_text())["mcpServers"]
    assert own == {"toolscript": {"command": "/opt/toolscript", "args": ["mcp"], "env": {"TOKEN": "${env:TOKEN}"}}}


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "toolscript", "args": ["mcp"]},
        {"command": "C:\\Tools\\toolscript.exe", "args": ["mcp"]},
        {"command": "python", "args": ["-m", "toolscript", "mcp"]},
        {"command": "uvx", "args": ["--from", "toolscript[server]", "toolscript", "mcp"]},
        {"type": "http", "url": "http://127.0.0.1:3780/mcp"},
    ],
)
def test_toolscript_itself_stays(clients: Clients, entry: Mapping[str, Any]) -> None:
    clients.write("cursor", {"mcpServers": {"tools": entry}})
    assert reasons(clients.find()) == {"tools": "Toolscript itself"}
    assert clients.plan() == {}


def test_servers_that_cannot_move_stay_with_a_reason(clients: Clients) -> None:
    entries = {
        "off": {"command": "x", "disabled": True},
        "typo": {"comand": "x", "env": {"TOKEN": "s3cret"}},
        "picked": {"command": "x", "args": ["${command:pick}"]},
        "text": "x",
        "odd": {"command": "x", "oauth": {"clientId": "x"}},
        "good": {"command": "x"},
        "toolscript": {"command": "y", "disabled": True},
    }
    file = clients.write("cursor", {"mcpServers": entries})
    found = reasons(clients.find())
    assert found["off"] == "disabled"
    assert "did you mean" in found["typo"]
    assert "s3cret" not in found["typo"]
    assert "${command:" in found["picked"]
    assert found["text"]
    assert list(clients.apply()) == ["good"]
    after = json.loads(file.read_text())["mcpServers"]
    assert list(after) == ["off", "typo", "picked", "text", "odd", "toolscript", "toolscript-2"]
    assert after["toolscript-2"]["command"] == "/opt/toolscript"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"mcpServers": {"a": }', "expected a value"),
        ('{"mcpServers": ["a"]}', "must be an object of servers by name"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "duplicate key"),
        ('{"mcpServers": {"a": {"command": "x"}}, "mcpServers": {"b": {"command": "y"}}}', "duplicate key"),
        ("\x00", "NUL"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem_and_stays(clients: Clients, content: str, problem: str) -> None:
    clients.write("cursor", content)
    (found,) = clients.find()
    assert problem in str(found.problem)
    assert clients.plan() == {}


@pytest.mark.parametrize("content", ["", "{}", '{"mcpServers": {}}', '{"mcpServers": null}', "[]"])
def test_a_file_without_servers_is_not_found(clients: Clients, content: str) -> None:
    clients.write("cursor", content)
    assert clients.find() == []


def test_the_existing_configuration_keeps_its_text(clients: Clients) -> None:
    clients.target.write_text('{\n    // mine\n    "mcpServers": {\n        "own": {"command": "o"} // one\n    }\n}\n')
    clients.write("cursor", {"mcpServers": {"time": {"command": "uvx", "args": ["time"]}}})
    clients.apply()
    text = clients.target.read_text()
    assert text.startswith(
        '{\n    // mine\n    "mcpServers": {\n        "own": {"command": "o"}, // one\n        "time": {'
    )
    assert list(read(text)["mcpServers"]) == ["own", "time"]


def test_an_entry_with_a_key_twice_stays(clients: Clients) -> None:
    clients.write("cursor", '{"mcpServers": {"a": {"command": "x", "command": "y"}}}')
    assert "duplicate key" in reasons(clients.find())["a"]


@quick
@given(
    st.lists(st.sampled_from(["one", "two", "three", "off", "toolscript"]), unique=True, min_size=1),
    st.sampled_from([None, 1, 4, "\t"]),
    st.booleans(),
    st.booleans(),
)
def test_strict_files_stay_strict_and_everything_else_in_them_stays(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], indent: int | str | None, first: bool, last: bool
) -> None:
    clients = Clients(tmp_path_factory.mktemp("home"))
    entries = {name: {"command": "x", "args": [name], "disabled": name == "off"} for name in names}
    around = ({"before": [1, {"a": None}]} if first else {}) | {"mcpServers": entries}
    content = around | ({"after": {"b": "\u2028"}} if last else {})
    file = clients.write("cursor", json.dumps(content, indent=indent, ensure_ascii=False))
    moving = [name for name in names if name != "off"]
    if moving:
        assert list(clients.apply()) == moving
    after = json.loads(file.read_text())
    assert {**after, "mcpServers": {}} == {**content, "mcpServers": {}}
    assert list(after["mcpServers"]) == ["off"] * ("off" in names) + ["toolscript"] * bool(moving)


def test_names_become_valid_ones(clients: Clients) -> None:
    names = ["a__b", "x/y", "end_", "  ", "n" * 80]
    clients.write("cursor", {"mcpServers": {name: {"command": "x", "args": [name]} for name in names}})
    assert list(clients.apply()) == ["a_b", "x-y", "end", "server", "n" * 64]
