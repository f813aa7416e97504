"""Reads what the entry of a server changes of its tools: names, descriptions, hidden tools and fixed arguments.

An unknown key is an error: a misspelt `hidden` would show what it should hide."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from toolscript.configuration.jsonc import JsoncNode
from toolscript.configuration.variables import VARIABLE
from toolscript.domain.spelling import suggest
from toolscript.domain.tool_overrides import ArgumentOverride, Overrides, ToolOverride

RULE = 'must be an object such as {"create_issue": {"name": "new_ticket", "arguments": {"repo": {"default": "a/b"}}}}'
KEYS = ("name", "description", "hidden", "arguments")
ARGUMENT_KEYS = ("default", "description", "hidden")
MAX_DESCRIPTION = 10_000
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
# These are folders of this machine, and no secrets.
_PLACE = r"\$\{(?:workspaceFolder|workspaceFolderBasename|userHome|pathSeparator)\}"

Report = Callable[[JsoncNode, str], None]
Resolve = Callable[[JsoncNode], str | None]


def read_tool_overrides(node: JsoncNode | None, report: Report, resolve: Resolve) -> Overrides:
    """The overrides by the server's names of its tools. Problems are reported. A list or a text is a key of
    other clients."""
    if node is None or isinstance(node.value, list | str):
        return {}
    if not isinstance(node.value, dict):
        report(node, RULE)
        return {}
    overrides = {name: _OverrideReader(report, resolve).read(each) for name, each in node.value.items()}
    taken: dict[str, str] = {}
    for name, each in overrides.items():
        first = taken.setdefault(each.name or name, name)
        if first != name:
            place = node.value[name].find("name") or node.value[name]
            report(place, f"{each.name or name!r} is the name of tools.{first}, too: each tool needs its own")
    return overrides


class _OverrideReader:
    """Reads the override of one tool."""

    def __init__(self, report: Report, resolve: Resolve) -> None:
        self._report = report
        self._resolve = resolve

    def read(self, node: JsoncNode) -> ToolOverride:
        members = self._read_members(node, KEYS)
        name = self._read_text(members.get("name"))
        if name is not None and not re.fullmatch(_NAME, name):
            rule = "use 1 to 64 letters, digits, dots, - and _, with a letter or digit first"
            self._report(members["name"], f"invalid name of a tool: {rule}")
        arguments = members.get("arguments")
        return ToolOverride(
            name or "",
            self._read_text(members.get("description")),
            self._read_flag(members.get("hidden")),
            {key: self._read_argument(each) for key, each in self._read_members(arguments).items()},
        )

    def _read_argument(self, node: JsoncNode) -> ArgumentOverride:
        members = self._read_members(node, ARGUMENT_KEYS)
        default, is_hidden = members.get("default"), self._read_flag(members.get("hidden"))
        if is_hidden and default is None:
            self._report(node, "is hidden and has no default: give the value that each call has")
        secrets: list[str] = []
        value = self._resolve_all(default, secrets) if default else None
        if secrets and default and not is_hidden:
            self._report(default, 'callers see it, and it has a variable of the environment: add "hidden": true')
        description = self._read_text(members.get("description"))
        return ArgumentOverride(value, default is not None, description, is_hidden, tuple(secrets))

    def _resolve_all(self, node: JsoncNode, secrets: list[str]) -> Any:
        """The value with its variables replaced. What comes from the environment is added to `secrets`."""
        if isinstance(node.value, dict):
            return {name: self._resolve_all(each, secrets) for name, each in node.value.items()}
        if isinstance(node.value, list):
            return [self._resolve_all(each, secrets) for each in node.value]
        if not isinstance(node.value, str):
            return node.value
        text = self._resolve(node)
        if text is not None:
            used = (match[0] for match in re.finditer(VARIABLE, node.value))
            secrets += (self._resolve(replace(node, value=each)) or "" for each in used if not re.match(_PLACE, each))
        return text

    def _read_members(self, node: JsoncNode | None, known: tuple[str, ...] = ()) -> Mapping[str, JsoncNode]:
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self._report(node, "must be an object")
            return {}
        for name, each in node.value.items():
            if known and name not in known:
                self._report(each, f"unknown key: allowed are {', '.join(known)}{suggest(name, known)}")
        return node.value

    def _read_text(self, node: JsoncNode | None) -> str | None:
        if node is None:
            return None
        if not isinstance(node.value, str) or len(node.value) > MAX_DESCRIPTION:
            self._report(node, f"must be a string of at most {MAX_DESCRIPTION} characters")
            return None
        return node.value

    def _read_flag(self, node: JsoncNode | None) -> bool:
        if node is not None and not isinstance(node.value, bool):
            self._report(node, "must be true or false")
        return node is not None and node.value is True
