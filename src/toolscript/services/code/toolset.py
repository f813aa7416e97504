"""Which tools the names in a program stand for, among those that its caller may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from toolscript.domain.programs import Language, RunProblem
from toolscript.domain.quarantine import require_released
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.visibility import Visibility

# A server that a program names without a tool: all its tools are there, as far as they are not too many.
MAX_TOOLS_OF_SERVER = 200


@dataclass(frozen=True, slots=True)
class _ProgramNames:
    """The tools that a caller sees, by server, and their names in one language, which are made when they are needed."""

    language: Language
    tools: Mapping[str, Mapping[str, Item]]
    servers: Mapping[str, str]
    _named: dict[str, dict[str, str]] = field(default_factory=dict)

    def list_tools(self, server: str) -> Mapping[str, str]:
        """The tools of a server by their names in programs."""
        if server not in self._named:
            self._named[server] = name_tools(self.language, self.tools[server])
        return self._named[server]


@dataclass(frozen=True, slots=True)
class Toolset:
    """The tools that a program names, and what is wrong with other names."""

    tools: ProgramTools
    problems: list[RunProblem]
    _lines: Mapping[int, list[Item]]

    def format_signatures(self, line: int) -> list[str]:
        """The signatures of the tools that are called in a line."""
        return [format_signature(item) for item in self._lines.get(line, ())]


class Toolsets:
    """Resolves names of programs."""

    def __init__(self, snapshots: CatalogueSnapshots, visibility: Visibility) -> None:
        self._snapshots = snapshots
        self._visibility = visibility
        self._known: dict[tuple[Profile | None, Language], tuple[int, _ProgramNames]] = {}

    async def find(self, language: Language, source: str) -> Toolset:
        """The tools that a program names. Raises what the store raises."""
        named = find_named_tools(source)
        names = await self._read_names(language) if named else _ProgramNames(language, {}, {})
        found: dict[tuple[str, str], Item] = {}
        problems: list[RunProblem] = []
        lines: dict[int, list[Item]] = {}
        for each in named:
            resolved = _resolve(names, each)
            if isinstance(resolved, str):
                problems.append(RunProblem(each.line, resolved))
                continue
            found |= {(each.server, name): item for name, item in resolved.items()}
            if each.name:
                lines.setdefault(each.line, []).extend(resolved.values())
        return Toolset(ProgramTools(language, [(*key, item) for key, item in found.items()]), problems, lines)

    async def name_calls(self, language: Language, item_ids: Iterable[str]) -> dict[str, str]:
        """How a program calls these tools, as far as the caller sees them."""
        names = await self._read_names(language)
        calls: dict[str, str] = {}
        servers = {server: name for name, server in names.servers.items()}
        wanted = set(item_ids)
        for server, tools in names.tools.items():
            ids = {item.id: tool for tool, item in tools.items() if item.id in wanted}
            if ids:
                by_tool = {tool: name for name, tool in names.list_tools(server).items()}
                calls |= {i: format_call(language, servers[server], by_tool[tool]) for i, tool in ids.items()}
        return calls

    async def choose(self, language: Language, item_ids: Iterable[str]) -> ProgramTools:
        """These tools, named as in programs."""
        names, wanted, chosen = await self._read_names(language), set(item_ids), []
        for name, server in names.servers.items():
            for tool_name, tool in names.list_tools(server).items():
                item = names.tools[server][tool]
                if item.id in wanted and not item.quarantine:
                    chosen.append((name, tool_name, item))
        return ProgramTools(language, chosen)

    async def _read_names(self, language: Language) -> _ProgramNames:
        """The names of what the caller sees of the current snapshot."""
        snapshot, key = self._snapshots.current(), (self._visibility.profile, language)
        version, names = self._known.get(key, (0, None))
        if names is None or version != snapshot.version:
            facts = (await snapshot.facts()).items
            items = await self._visibility.select(each.to_item() for each in facts.values())
            tools: dict[str, dict[str, Item]] = {}
            for item in items:
                if item.type is ItemType.TOOL:
                    tools.setdefault(item.server, {})[item.name] = item
            names = _ProgramNames(language, tools, name_servers(language, tools))
            current = {each: known for each, known in self._known.items() if known[0] == snapshot.version}
            self._known = {**current, key: (snapshot.version, names)}
        return names


def _resolve(names: _ProgramNames, named: NamedTool) -> dict[str, Item] | str:
    """The tools by their names; or what is wrong."""
    if named.server not in names.servers:
        near = get_close_matches(named.server, names.servers, n=3)
        hint = f"did you mean {' or '.join(f'tools.{each}' for each in near)}?" if near else "search_tools finds tools"
        return f"{named}: no such server: {hint}"
    server = names.servers[named.server]
    tools, items = names.list_tools(server), names.tools[server]
    if not named.name:
        usable = {name: items[tool] for name, tool in tools.items() if not items[tool].quarantine}
        return dict(list(usable.items())[:MAX_TOOLS_OF_SERVER])
    if named.name not in tools:
        near = get_close_matches(named.name, tools, n=3)
        calls = [format_call(names.language, named.server, each) for each in near]
        return f"{named}: no such tool: " + (f"did you mean {' or '.join(calls)}?" if near else "search_tools finds it")
    item = items[tools[named.name]]
    try:
        require_released(item)
    except Quarantined as error:
        return error.message
    return {named.name: item}
