"""Finds the tools that an agent skill names, so that an agent knows before it begins which of them it can call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from toolscript.domain.agent_skills import get_body
from toolscript.domain.catalog import Item
from toolscript.domain.native_names import split_name

MAX_NAMED = 50
# How Claude Code names tools of servers.
CLIENT_PREFIX = "mcp__"
# The patterns take time that grows with the text: a token is tried once, and each part of it has a bound.
_ALLOWED = re.compile(r"[^\s,()]+(?:\([^()]*\))?")
# `server__tool`, or `Server:tool`, as guides for authors of agent skills have it.
_QUALIFIED = re.compile(r"(?<![\w.-])[A-Za-z0-9][\w.-]{0,127}?(?:__|:)[A-Za-z0-9][\w.-]{0,127}\b")
_CODE = re.compile(r"`([^`\n]{2,200})`")


class NamedTools(NamedTuple):
    """The ids of connected tools, and the names of others."""

    connected: list[str]
    missing: list[str]


def find_named_tools(item: Item, tool_ids: Iterable[str]) -> NamedTools:
    """The tools in the `allowed-tools` and the text of an agent skill. A name without a server counts where it is that
    of a connected tool and is written as code. Tools of the client itself, such as `Bash`, are left out."""
    by_id = {_simplify(tool_id): tool_id for tool_id in tool_ids}
    by_name: dict[str, list[str]] = {}
    for key, tool_id in by_id.items():
        by_name.setdefault(split_name(key)[1], []).append(tool_id)
    servers = {split_name(key)[0] for key in by_id}
    allowed, body = dict.fromkeys(_list_allowed(item)), get_body(item)
    found: dict[str, None] = {}
    missing: dict[str, None] = {}
    for name in (*allowed, *_QUALIFIED.findall(body)):
        key = _simplify(name)
        is_of_server = name.startswith(CLIENT_PREFIX) or name in allowed or split_name(key)[0] in servers
        if key in by_id:
            found[by_id[key]] = None
        elif "__" in name.removeprefix(CLIENT_PREFIX) and is_of_server:
            missing[name] = None
    for name in (*allowed, *(code for code in _CODE.findall(body) if "_" in code or "-" in code)):
        found |= dict.fromkeys(by_name.get(_simplify(name), ()))
    return NamedTools(sorted(found)[:MAX_NAMED], sorted(missing)[:MAX_NAMED])


def _simplify(name: str) -> str:
    """The name as `server__tool`, without what clients write in another way."""
    server, mark, tool = name.removeprefix(CLIENT_PREFIX).partition(":")
    return (f"{server}__{tool}" if mark else server).lower().replace("-", "_").replace(" ", "_")


def _list_allowed(item: Item) -> list[str]:
    allowed = (item.definition or {}).get("frontmatter", {}).get("allowed-tools") or ""
    text = " ".join(map(str, allowed)) if isinstance(allowed, list) else str(allowed)
    return [name.partition("(")[0] for name in _ALLOWED.findall(text)]
