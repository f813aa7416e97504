"""Adds servers to a configuration file from the snippet that their documentation gives for other MCP clients.

The snippet is checked as the file would be, and what the file has already stays as it is, with its comments."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolscript.configuration.data_files import OWNER_ONLY, replace_file
from toolscript.configuration.files import check_name, list_files, load_configuration, parse_entry
from toolscript.configuration.jsonc import JsoncDocument, JsoncError, JsoncNode, parse_jsonc
from toolscript.configuration.jsonc_edit import add_member, read_source
from toolscript.configuration.text_files import read_text
from toolscript.domain.errors import Conflict, Invalid, Unavailable
from toolscript.domain.servers import Transport

SERVER_LISTS = (("mcpServers",), ("servers",), ("mcp", "servers"))
_ENTRY_SIGNS = frozenset({"command", "openapi", "url", "httpUrl", "serverUrl"})
_PLACEHOLDER = re.compile(
    r"<[^<>]+>|\.\.\.|x{3,}|.*\b(?:your|my)[-_ ]?(?:\w+[-_ ])?(?:key|token|secret|password)\b.*", re.IGNORECASE
)
_SECRET_KEYS = ("env", "headers")
BYTE_ORDER_MARK = "\ufeff"
EXAMPLE = (
    '{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]}}}'
)


@dataclass(frozen=True, slots=True)
class ConfigurationPlace:
    """The configuration files that a gateway reads."""

    config: Path | None
    """The file of --config; None for the default files."""
    home: Path
    folder: Path
    environment: Mapping[str, str]

    @property
    def target(self) -> Path:
        """The file that servers are added to: the file of --config, or the file in the home folder, unless only the
        working folder has one."""
        first, *others = list_files(self.config, home=self.home, folder=self.folder)
        return next((file for file in (first, *others) if file.exists()), first)


@dataclass(frozen=True, slots=True)
class PlannedServer:
    """A server of a snippet."""

    name: str
    entry: str
    """The source of its entry."""
    transport: Transport | None
    runs: str
    """The command line or the address, whichever will be used, as the snippet has it."""
    variables: tuple[str, ...]
    """The names of its variables and headers, whose values are secrets."""
    cwd: str | None
    env_file: str | None
    sandbox: str | None
    problem: str | None
    """Why it cannot be added."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedAddition:
    """What a snippet adds to a file, and what the file has now."""

    file: Path
    before: str | None
    servers: tuple[PlannedServer, ...]


def plan_addition(snippet: str, place: ConfigurationPlace, name: str | None = None) -> PlannedAddition:
    """What a snippet would add: an `mcpServers` object, one or more entries by name, or a single entry for the given
    name. Raises Invalid for a text without servers, and for a configuration file that has errors itself."""
    text, document = _parse_snippet(snippet)
    nodes = _find_entries(document.root, name)
    if not nodes:
        raise Invalid(f"no server in the snippet: expected an object like {EXAMPLE}", details={"field": "snippet"})
    if document.repeated:
        first, line = document.repeated[0]
        raise Invalid(f"{first.key}: duplicate key, again in line {line}", details={"field": "snippet"})
    target = place.target
    check_files(place)
    taken = {
        each: file
        for file in list_files(place.config, home=place.home, folder=place.folder)
        for each in _list_names(file)
    }
    before = read_text(target)
    servers = (_plan_server(each, node, read_source(text, node), target, place, taken) for each, node in nodes.items())
    return PlannedAddition(target, before, tuple(servers))


def write_addition(addition: PlannedAddition) -> None:
    """Adds the servers to the file. The file is replaced as a whole and keeps its permissions. Raises Invalid when one
    of the servers has a problem, Conflict when the file has changed since, and Unavailable when it cannot be
    written."""
    problems = [f"{server.name}: {server.problem}" for server in addition.servers if server.problem]
    if problems:
        raise Invalid("; ".join(problems), details={"field": "snippet", "problems": problems})
    after = "{\n}\n" if addition.before is None else addition.before
    root = parse_jsonc(after).root
    path = next((path for path in SERVER_LISTS if root.find(*path)), SERVER_LISTS[0])
    for server in addition.servers:
        after = add_member(after, (*path, server.name), server.entry)
    replace_text(addition.file, addition.before, after)


def replace_text(path: Path, before: str | None, after: str) -> None:
    """Replaces the text of a configuration file, which keeps its permissions. Raises Conflict when the file has changed
    since `before` was read, and Unavailable when it cannot be written."""
    file = path.resolve()  # links stay links
    if read_text(file) != before:
        raise Conflict(f"{path} has changed in the meantime: try again", details={"file": str(path)})
    try:
        has_mark = file.exists() and file.read_bytes().startswith(BYTE_ORDER_MARK.encode())
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else OWNER_ONLY
        replace_file(file, (BYTE_ORDER_MARK if has_mark else "") + after, mode=mode)
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {error.strerror}. Add the entry there by hand, or make the file writable "
            "for the gateway",
            details={"file": str(path)},
        ) from error


def _parse_snippet(snippet: str) -> tuple[str, JsoncDocument]:
    """The text and what it holds. Documentation often leaves the outer braces out."""
    text = snippet.strip()
    text = f"{{{text}}}" if text.startswith('"') else text
    try:
        return text, parse_jsonc(text)
    except JsoncError as error:
        raise Invalid(
            f"the snippet is not valid JSON: {error.message} (line {error.line}, column {error.column})",
            details={"field": "snippet", "line": error.line},
        ) from error


def _find_entries(root: JsoncNode, name: str | None) -> dict[str, JsoncNode]:
    members = root.value if isinstance(root.value, dict) else {}
    for path in SERVER_LISTS:
        if (found := root.find(*path)) and isinstance(found.value, dict) and not _ENTRY_SIGNS & found.value.keys():
            return {
                key.replace("/", "-") if path != SERVER_LISTS[0] else key: node for key, node in found.value.items()
            }
    if _ENTRY_SIGNS & members.keys():
        if not name:
            raise Invalid("the snippet is a single entry: give the server a name", details={"field": "name"})
        return {name: root}
    return {key: node for key, node in members.items() if isinstance(node.value, dict)}


def check_files(place: ConfigurationPlace) -> None:
    """Raises Invalid for a configuration that has errors: what is written into it would not be used, and what is wrong
    in it could be lost."""
    if place.config is not None and not place.target.exists():
        return
    try:
        load_configuration(place.config, home=place.home, folder=place.folder, environment=place.environment)
    except Invalid as error:
        raise Invalid(f"{error.message}\nCorrect the file first: nothing was written", details=error.details) from error


def _list_names(file: Path) -> list[str]:
    """The names in a configuration file without errors."""
    text = read_text(file)
    root = parse_jsonc(text).root if text is not None else None
    lists = [root.find(*path) for path in SERVER_LISTS] if root else []
    return [name for node in lists if node and isinstance(node.value, dict) for name in node.value]


def _plan_server(
    name: str, node: JsoncNode, entry: str, file: Path, place: ConfigurationPlace, taken: Mapping[str, Path]
) -> PlannedServer:
    content = node.to_python()
    members: dict[str, Any] = content if isinstance(content, dict) else {}
    secrets = {key: members[key] for key in _SECRET_KEYS if isinstance(members.get(key), dict)}
    transport, sandbox, problem = None, None, check_name(name)
    try:
        spec = parse_entry(name, entry, file=file, home=place.home, environment=place.environment)
        transport = spec.transport if spec else None
        sandbox = spec.sandbox.summary if spec and spec.sandbox else None
        if spec is None:
            problem = problem or "it is disabled: remove `disabled` from the entry"
        elif spec.is_toolscript:
            problem = problem or "this is Toolscript itself"
    except Invalid as error:
        problem = problem or error.message
    if name in taken:
        problem = problem or f"{taken[name]} has a server of this name already: choose another, or edit the file"
    warnings = tuple(
        f"{key}.{each} looks like a placeholder: put in the real value"
        for key, values in secrets.items()
        for each, value in values.items()
        if isinstance(value, str) and _PLACEHOLDER.fullmatch(value.strip())
    )
    variables = tuple(str(each) for values in secrets.values() for each in values)
    cwd, env_file = (str(members[key]) if members.get(key) is not None else None for key in ("cwd", "envFile"))
    runs = _describe(members, transport)
    return PlannedServer(name, entry, transport, runs, variables, cwd, env_file, sandbox, problem, warnings)


def _describe(entry: Mapping[str, Any], transport: Transport | None) -> str:
    address = next((entry[key] for key in ("httpUrl", "url", "serverUrl") if entry.get(key) is not None), None)
    command = entry.get("command")
    if transport is Transport.OPENAPI:
        return f"{entry.get('openapi')}{f' at {address}' if address else ''}"
    if address is not None and (transport not in {None, Transport.STDIO} or command is None):
        return str(address)
    arguments = entry.get("args")
    return shlex.join(map(str, [command or "", *(arguments if isinstance(arguments, list) else ())]))
