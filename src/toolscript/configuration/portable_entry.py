"""Makes the entry of a server independent of its client and its project, so that it works in another file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from toolscript.configuration.jsonc import JsoncNode, parse_jsonc
from toolscript.configuration.jsonc_edit import TextEdit, add_member, apply_edits
from toolscript.configuration.variables import VARIABLE, name_input_variable
from toolscript.domain.errors import Invalid

# Clients give these to every program that they start: see `getDefaultEnvironment` of the MCP SDKs.
INHERITED_VARIABLES = frozenset(
    "APPDATA HOME HOMEDRIVE HOMEPATH LOCALAPPDATA LOGNAME PATH SHELL SYSTEMDRIVE SYSTEMROOT TEMP TERM USER USERNAME "
    "USERPROFILE".split()
)
# Logins that the client makes, and limits that it sets: without them the server would fail, or be allowed more.
_BOUND_KEYS = ("auth", "oauth", "headersHelper", "sandbox", "sandboxEnabled")
_WORKSPACE = frozenset({"workspaceFolder", "workspaceFolderBasename"})
_PLACES = _WORKSPACE | {"userHome", "pathSeparator"}
_OTHER_VARIABLE = r"\$\{(?!env:|input:)[A-Za-z]+:(?!-)"
_ABSOLUTE = r"[/~\\]|\$\{|[A-Za-z]:"


@dataclass(frozen=True, slots=True)
class PortableEntry:
    """The source of an entry, and the variables that it needs, each as its client writes it."""

    source: str
    variables: dict[str, str] = field(default_factory=dict)


def make_portable(source: str, project: Path | None) -> PortableEntry:
    """Writes places of the project as paths, and gives variables an empty default: a variable that one client lacks
    must not keep the servers of all others from starting. Comments stay. Raises Invalid if only the client itself can
    read the entry."""
    entry = PortableEntry(source)
    root = parse_jsonc(source).root
    if bound := [key for key in _BOUND_KEYS if (node := root.find(key)) and node.value]:
        raise Invalid(f"only its client can apply {' and '.join(bound)}")
    edits = []
    for node in _iterate_strings(root):
        text = str(node.value)
        resolved = re.sub(VARIABLE, lambda match: _rewrite(match, entry, project), text)
        if found := re.search(_OTHER_VARIABLE, text):
            raise Invalid(f"only its client can resolve {found[0]}…}}")
        is_path = node.name in {"cwd", "envFile"} or (node.name == "openapi" and "://" not in resolved)
        if node.parent is root and is_path and not re.match(_ABSOLUTE, resolved):
            if project is None:
                raise Invalid(f"{node.name} is relative to an unknown folder")
            resolved = str(project / resolved)
        if resolved != text:
            edits.append(TextEdit(node.start, node.end, json.dumps(resolved, ensure_ascii=False)))
    disabled = root.find("disabledTools")
    if disabled and not root.find("excludeTools"):  # Windsurf's name for them
        edits.append(TextEdit(disabled.key_start, disabled.key_start + len('"disabledTools"'), '"excludeTools"'))
    portable = apply_edits(source, edits)
    if project and root.find("command") and not root.find("cwd"):  # clients start servers of a project in its folder
        portable = add_member(portable, ("cwd",), json.dumps(str(project), ensure_ascii=False))
    return PortableEntry(portable, entry.variables)


def _rewrite(match: re.Match[str], entry: PortableEntry, project: Path | None) -> str:
    if match["other"]:
        return match[0]  # refused as all other variables of a client
    name = name_input_variable(match["input"]) if match["input"] else match["name"]
    if name in _PLACES and not match["env"]:
        if name in _WORKSPACE and project is None:
            raise Invalid(f"{match[0]} is another folder in each project")
        places = {"workspaceFolder": str(project), "workspaceFolderBasename": project.name} if project else {}
        return places.get(name, match[0])
    if name not in INHERITED_VARIABLES:
        entry.variables[name] = match[0]
    return match[0] if match["default"] is not None else f"${{{name}:-}}"


def _iterate_strings(node: JsoncNode) -> Iterator[JsoncNode]:
    match node.value:
        case str():
            yield node
        case dict():
            for member in node.value.values():
                yield from _iterate_strings(member)
        case list():
            for element in node.value:
                yield from _iterate_strings(element)
