"""Plans to move the servers of MCP clients into Toolscript's configuration. Nothing is written here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from toolscript.configuration.agent_skill_folders import AGENT_SKILL_FOLDERS, add_folders
from toolscript.configuration.client_entries import CLIENTS, convert_entry
from toolscript.configuration.client_files import ClientFile, ServerList, find_server_lists
from toolscript.configuration.files import parse_entry
from toolscript.configuration.formats.file_format import FileFormat, KeyPath
from toolscript.configuration.formats.registry import find_format, name_format
from toolscript.configuration.jsonc import JsoncError, JsoncNode, parse_jsonc
from toolscript.configuration.jsonc_edit import add_member
from toolscript.configuration.portable_entry import make_portable
from toolscript.configuration.text_files import read_text
from toolscript.domain.errors import Invalid
from toolscript.domain.servers import ServerSpec

NAME = "toolscript"
MAX_NAME_LENGTH = 64

ParseSpec = Callable[[str, str], ServerSpec | None]


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server in a client's file. It moves if it has a `target`."""

    name: str
    path: KeyPath
    entry: str = ""
    """The source of the entry, for any file."""
    variables: Mapping[str, str] = field(default_factory=dict)
    spec: ServerSpec | None = None
    target: str = ""
    """Its name in Toolscript's configuration."""
    reason: str = ""
    """Why it stays."""
    is_toolscript: bool = False


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A client's file with servers, or with a problem."""

    source: ClientFile
    text: str = ""
    servers: tuple[FoundServer, ...] = ()
    problem: str | None = None

    @property
    def moving(self) -> list[FoundServer]:
        """The servers that move."""
        return [server for server in self.servers if server.target]


@dataclass(frozen=True, slots=True)
class FileChange:
    """The old and the new text of a file. `lists` are the places that differ."""

    file: Path
    before: str | None
    after: str
    lists: tuple[KeyPath, ...]
    format: str = "json"
    """The name of the file's format."""
    is_target: bool = False
    """Whether it is Toolscript's configuration, which gets the servers of all others."""


def find_servers(
    source: ClientFile, *, home: Path, environment: Mapping[str, str], own_urls: frozenset[str]
) -> FoundFile | None:
    """The servers of a client's file; None if it has none. A file that cannot be read has a problem instead."""
    edits = find_format(name_format(source.file))
    try:
        text = read_text(source.file)
        document = edits.parse(text) if text and text.strip() else None
    except JsoncError as error:
        return FoundFile(source, problem=f"{error.message} (line {error.line}, column {error.column})")
    except ValueError as error:
        return FoundFile(source, problem=str(error))
    if text is None or document is None:
        return None

    def parse_spec(name: str, entry: str) -> ServerSpec | None:
        return parse_entry(name, entry, file=source.file, home=home, environment=environment)

    servers: list[FoundServer] = []
    for each in find_server_lists(source, document.root):
        if not isinstance(each.node.value, dict):
            return FoundFile(source, problem=f"{each.node.key}: must be an object of servers by name")
        for first, line in document.repeated:
            if first.parent is each.node or first.key == each.node.key:
                return FoundFile(source, problem=f"{first.key}: duplicate key, again in line {line}")
        servers += [
            _read_server(source.client, edits.read_entry(text, node), each, node, parse_spec, own_urls)
            for node in each.node.value.values()
        ]
    return FoundFile(source, text, tuple(servers)) if servers else None


def _read_server(
    client: str, source: str, place: ServerList, node: JsoncNode, parse_spec: ParseSpec, own_urls: frozenset[str]
) -> FoundServer:
    name = str(node.name)
    found = FoundServer(name, (*place.path, name))
    try:
        portable = make_portable(convert_entry(client, source, node.to_python()), place.project)
        spec = parse_spec(name, portable.source)
    except Invalid as error:
        return replace(found, reason=error.message)
    if spec is None:
        return replace(found, reason="disabled")
    if spec.is_toolscript or spec.url.rstrip("/") in own_urls:
        return replace(found, spec=spec, reason="Toolscript itself", is_toolscript=True)
    return replace(found, entry=portable.source, variables=portable.variables, spec=spec)


def assign_names(files: Sequence[FoundFile], target: JsoncNode | None) -> list[FoundFile]:
    """Gives every server that can move its name in Toolscript's configuration. Equal entries share one; another entry
    of the same name gets the client's name behind its own."""
    taken: dict[str, Any] = {}
    for path in (("servers",), ("mcp", "servers"), ("mcpServers",)):
        node = target.find(*path) if target else None
        taken |= node.to_python() if node and isinstance(node.value, dict) else {}

    def assign(server: FoundServer, client: str) -> FoundServer:
        if server.reason or server.spec is None:
            return server
        value = parse_jsonc(server.entry).root.to_python()
        plain = re.sub(r"[/,\x00-\x1f\x7f-\x9f\u2028\u2029]", "-", server.name)
        first = re.sub("_{2,}", "_", plain)[:MAX_NAME_LENGTH].strip().rstrip("_ ") or "server"
        suffixes = ("" if n == 0 else f"-{client}" if n == 1 else f"-{client}-{n}" for n in count())
        names = (first[: MAX_NAME_LENGTH - len(suffix)] + suffix for suffix in suffixes)
        equal = (each for each, other in taken.items() if other == value and each.startswith(first))
        name = next(equal, None) or next(each for each in names if each not in taken)
        taken[name] = value
        return replace(server, target=name, spec=replace(server.spec, name=name))

    return [replace(f, servers=tuple(assign(server, f.source.client) for server in f.servers)) for f in files]


def plan_changes(
    files: Sequence[FoundFile],
    target: Path,
    target_text: str | None,
    command: Sequence[str],
    agent_skills: Sequence[str] = (),
) -> list[FileChange]:
    """What to write, Toolscript's configuration first: at no moment is a server in no file. `command` starts
    Toolscript's MCP server; `agent_skills` are folders to add."""
    moved = {server.target: server for each in files for server in each.moving}
    after = target_text if target_text and target_text.strip() else "{\n}\n"
    existing = parse_jsonc(after).root
    for name, server in moved.items():
        if not any(existing.find(*path, name) for path in (("mcpServers",), ("servers",), ("mcp", "servers"))):
            after = add_member(after, ("mcpServers", name), server.entry)
    after = add_folders(after, agent_skills) if agent_skills else after
    places = ([("mcpServers",)] if moved else []) + ([(AGENT_SKILL_FOLDERS,)] if agent_skills else [])
    is_changed = after != target_text and bool(places)
    changes = [FileChange(target, target_text, after, tuple(places), is_target=True)] if is_changed else []
    return changes + [_plan_change(each, command) for each in files if each.moving]


def _plan_change(found: FoundFile, command: Sequence[str]) -> FileChange:
    """Raises Invalid where the layout of a file does not allow to edit servers alone, such as a table in one line."""
    source, format_name = found.source, name_format(found.source.file)
    edits = find_format(format_name)
    try:
        text, expected = _move_servers(found, edits, command)
        is_as_expected = edits.parse(text).root.to_python() == expected
    except JsoncError:
        is_as_expected = False
    if not is_as_expected:
        raise Invalid(
            f"{source.file}: its layout does not allow to move single servers: write each server on lines of its own, "
            "or leave the client out with --client",
            details={"file": str(source.file)},
        )
    lists = dict.fromkeys([*(server.path[:-1] for server in found.moving), source.servers])
    return FileChange(source.file, found.text, text, tuple(lists), format_name)


def _move_servers(found: FoundFile, edits: FileFormat, command: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The new text of a file, and what it has to say."""
    servers, text = found.source.servers, found.text
    expected = edits.parse(text).root.to_python()
    for server in found.moving:
        text = edits.remove(text, server.path)
        _find_table(expected, server.path[:-1]).pop(server.name, None)
    staying = {s.path[-1]: s for s in found.servers if not s.target and s.path[:-1] == servers}
    own = next((name for name, server in staying.items() if server.is_toolscript), None)
    if own is None:
        names = (NAME if n == 1 else f"{NAME}-{n}" for n in count(1))
        own = next(name for name in names if name not in staying)
        entry = CLIENTS[found.source.client].build_entry(own, command)
        text = edits.add(text, (*servers, own), entry)
        _find_table(expected, servers)[own] = entry
    variables = {k: v for s in found.moving for k, v in s.variables.items()}
    for variable, value in variables.items():
        env = _find_table(expected, (*servers, own, "env"))
        if variable not in env:
            text = edits.add(text, (*servers, own, "env", variable), value)
            env[variable] = value
    return text, expected


def _find_table(root: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    for key in path:
        root = root.setdefault(key, {})
    return root


def compute_list_digests(text: str, paths: Sequence[KeyPath], format_name: str = "json") -> list[str | None]:
    """A hash of the servers at each place of a file, whatever their layout; None if there is no such place."""
    root = find_format(format_name).parse(text).root
    nodes = [root.find(*path) for path in paths]
    contents = [json.dumps(node.to_python(), sort_keys=True) if node else None for node in nodes]
    return [hashlib.sha256(content.encode()).hexdigest() if content is not None else None for content in contents]
