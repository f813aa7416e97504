"""Maps the names in a program to tools that its caller may see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from toolscript.codegen.programs import (
    NamedTool,
    ProgramTools,
    find_named_tools,
    format_call,
    name_servers,
    name_tools,
)
from toolscript.codegen.signatures import format_signature
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Quarantined
from toolscript.domain.profiles import Profile
from toolscript.domain.programs import Language
from toolscript.domain.quarantine import require_released
from toolscript.domain.requests import current_request
from toolscript.domain.servers import ServerState, ServerStatus
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.visibility import Visibility

# A server that a program names without a tool: all its tools are there, as far as they are not too many.
MAX_TOOLS_OF_SERVER = 200
# More would fill an agent's context, and the first ones explain the others.
MAX_SIGNATURES = 5
MAX_PROBLEMS = 10
MAX_REASON = 300


@dataclass(frozen=True, slots=True)
class _ProgramNames:
    """The tools that a caller sees, by server, and their names in one language, made when they are needed. What others
    see has its names as well: a program names the same tools whoever runs it."""

    language: Language
    tools: Mapping[str, Mapping[str, Item]]
    servers: Mapping[str, str]
    all_tools: Mapping[str, Sequence[str]]
    _named: dict[str, dict[str, str]] = field(default_factory=dict)

    def list_tools(self, server: str) -> Mapping[str, str]:
        """The tools of a server by their names in programs."""
        if server not in self._named:
            named = name_tools(self.language, self.all_tools[server])
            self._named[server] = {name: tool for name, tool in named.items() if tool in self.tools[server]}
        return self._named[server]


@dataclass(frozen=True, slots=True)
class Toolset:
    """The tools that a program names, and what is wrong with other names, by line, unless they are in comments or
    strings or of something else: that is for a checker to say."""

    tools: ProgramTools
    problems: Mapping[int, str]
    _lines: Mapping[int, Mapping[str, Item]]

    def format_signatures(self, line: int) -> list[str]:
        """The signatures of the tools that are called in a line, as programs call them."""
        calls = list(self._lines.get(line, {}).items())[:MAX_SIGNATURES]
        return [format_signature(item, f"await {call}") for call, item in calls]


class Toolsets:
    """Resolves names of programs."""

    def __init__(
        self,
        snapshots: CatalogueSnapshots,
        visibility: Visibility,
        list_statuses: Callable[[], Sequence[ServerStatus]] = lambda: (),
    ) -> None:
        """`list_statuses` returns the statuses of all configured servers."""
        self._snapshots = snapshots
        self._visibility = visibility
        self._list_statuses = list_statuses
        self._known: dict[tuple[Profile | None, Language], tuple[int, _ProgramNames]] = {}

    async def find(self, language: Language, source: str) -> Toolset:
        """The tools that a program names. Raises what the store raises."""
        named = find_named_tools(source)
        if not named:
            return Toolset(ProgramTools(language, []), {}, {})
        names = await self._read_names(language)
        missing = await self._explain_missing_servers(names, named)
        # Names that are like a wrong one take milliseconds to find.
        return await asyncio.to_thread(_build_toolset, names, named, missing)

    async def name_calls(self, language: Language, item_ids: Iterable[str]) -> dict[str, str]:
        """How a program calls these tools, as far as the caller sees them."""
        names = await self._read_names(language)
        calls: dict[str, str] = {}
        servers = {server: name for name, server in names.servers.items()}
        requested_ids = set(item_ids)
        for server, tools in names.tools.items():
            ids = {item.id: tool for tool, item in tools.items() if item.id in requested_ids}
            if ids:
                by_tool = {tool: name for name, tool in names.list_tools(server).items()}
                calls |= {i: format_call(language, servers[server], by_tool[tool]) for i, tool in ids.items()}
        return calls

    async def choose(self, language: Language, item_ids: Iterable[str]) -> ProgramTools:
        """These tools, named as in programs."""
        names, requested_ids, chosen = await self._read_names(language), set(item_ids), []
        for name, server in names.servers.items():
            for tool_name, tool in names.list_tools(server).items():
                item = names.tools[server][tool]
                if item.id in requested_ids and not item.quarantine:
                    chosen.append((name, tool_name, item))
        return ProgramTools(language, chosen)

    async def _explain_missing_servers(self, names: _ProgramNames, named: Sequence[NamedTool]) -> dict[str, str]:
        """Why servers that a program names have no tools, as far as they are configured and the caller may see them."""
        unknown = {reference.server: reference.name for reference in named if reference.server not in names.servers}
        if not unknown:
            return {}
        context = current_request()
        statuses = {status.name: status for status in self._list_statuses() if status.name not in names.all_tools}
        servers = name_servers(names.language, statuses)
        return {
            name: _describe_status(statuses[servers[name]])
            for name, tool in unknown.items()
            if name in servers and await self._visibility.shows(Item(servers[name], tool), context)
        }

    async def _read_names(self, language: Language) -> _ProgramNames:
        """The names of what the caller sees of the current snapshot."""
        context, snapshot = current_request(), self._snapshots.current()
        key = self._visibility.find_profile(context), language
        version, names = self._known.get(key, (0, None))
        if names is None or version != snapshot.version:
            facts = (await snapshot.facts()).items
            items = [item for fact in facts.values() if (item := fact.to_item()).type is ItemType.TOOL]
            all_tools: dict[str, list[str]] = {}
            for item in items:
                all_tools.setdefault(item.server, []).append(item.name)
            tools: dict[str, dict[str, Item]] = {}
            for item in await self._visibility.select(items, context):
                tools.setdefault(item.server, {})[item.name] = item
            named = name_servers(language, all_tools)
            servers = {name: server for name, server in named.items() if server in tools}
            names = _ProgramNames(language, tools, servers, all_tools)
            current = {owner: known for owner, known in self._known.items() if known[0] == snapshot.version}
            self._known = {**current, key: (snapshot.version, names)}
        return names


def _build_toolset(names: _ProgramNames, named: Sequence[NamedTool], missing: Mapping[str, str]) -> Toolset:
    items: dict[tuple[str, str], Item] = {}
    wrong: dict[tuple[str, str], str] = {}
    problems: dict[int, str] = {}
    lines: dict[int, dict[str, Item]] = {}
    for reference in named:
        key = reference.server, reference.name
        if resolved := _resolve(names, reference):
            items |= {(reference.server, name): item for name, item in resolved.items()}
            if reference.name:
                calls = {format_call(names.language, reference.server, name): item for name, item in resolved.items()}
                lines.setdefault(reference.line, {}).update(calls)
        elif key in wrong or len(wrong) < MAX_PROBLEMS:
            wrong[key] = wrong.get(key) or _explain(names, reference, missing)
            problems.setdefault(reference.line, wrong[key])
    return Toolset(ProgramTools(names.language, [(*key, item) for key, item in items.items()]), problems, lines)


def _resolve(names: _ProgramNames, named: NamedTool) -> dict[str, Item]:
    """The tools by their names; none if something is wrong."""
    if named.server not in names.servers:
        return {}
    server = names.servers[named.server]
    tools, items = names.list_tools(server), names.tools[server]
    selected = [named.name] if named.name in tools else [] if named.name else tools
    usable = {name: items[tools[name]] for name in selected if not items[tools[name]].quarantine}
    return dict(list(usable.items())[:MAX_TOOLS_OF_SERVER])


def _find_id(names: _ProgramNames, tool_id: str) -> str:
    """How a program calls the tool with that id; empty if there is none."""
    server, _, tool = tool_id.partition("__")
    by_tool = {known: name for name, known in names.list_tools(server).items()} if server in names.tools else {}
    called = [name for name, named_server in names.servers.items() if named_server == server and tool in by_tool]
    return format_call(names.language, called[0], by_tool[tool]) if called else ""


def _describe_status(status: ServerStatus) -> str:
    """Why a server has no tools, and what to do."""
    server, reason = f"the server {status.name}", (status.reason or "no reason is known").splitlines()[0][:MAX_REASON]
    match status.state:
        case ServerState.CONNECTING:
            return f"{server} is still starting: try again in a moment"
        case ServerState.STOPPED:
            return f"{server} is {reason}: somebody has to start it (`toolscript servers start {status.name}`)"
        case ServerState.FAILED if status.needs_login:
            return f"{server} needs a login (`toolscript login {status.name}`): {reason}"
        case ServerState.FAILED:
            return f"{server} has failed, and is tried again (`toolscript list-servers` shows it): {reason}"
        case _:
            return f"{server} has no tools"


def _explain(names: _ProgramNames, named: NamedTool, missing: Mapping[str, str]) -> str:
    """What is wrong with a name that stands for no tool. `missing` says it of servers without tools."""
    if named.server in missing:
        return f"{named}: {missing[named.server]}"
    if named.server not in names.servers:
        if call := _find_id(names, named.server):
            return f"{named}: an id is not how a program calls a tool: write {call}"
        near = get_close_matches(named.server, names.servers, n=3)
        hint = f"did you mean {' or '.join(f'tools.{name}' for name in near)}?" if near else "search_tools finds tools"
        return f"{named}: no such server: {hint}"
    server = names.servers[named.server]
    tools = names.list_tools(server)
    if named.name in tools:
        try:
            require_released(names.tools[server][tools[named.name]])
        except Quarantined as error:
            return error.message
    near = get_close_matches(named.name, tools, n=3)
    calls = [format_call(names.language, named.server, name) for name in near]
    return f"{named}: no such tool: " + (f"did you mean {' or '.join(calls)}?" if near else "search_tools finds it")
