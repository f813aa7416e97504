"""The `search_tools` and `search_skills` tools. Results are a few short lines each, because every token is part of the
agent's context."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolscript.app.app import App
from toolscript.codegen.signatures import format_signature
from toolscript.domain.access import Caller
from toolscript.domain.catalog import ItemType, get_server
from toolscript.domain.errors import InvalidArguments, NotFound, ToolscriptError
from toolscript.domain.registry.launch import list_launches
from toolscript.domain.requests import current_request
from toolscript.domain.search import MAX_CLOSEST, SearchPart, SearchReport
from toolscript.services.tools.hierarchical_search import (
    HierarchicalHit,
    HierarchicalQuery,
    HierarchicalResults,
    Strategy,
)
from toolscript.services.tools.topics import SkillHit
from toolscript.surfaces.callers import OWNER
from toolscript.surfaces.json.registry import describe_needs, describe_runs
from toolscript.surfaces.json.tools import MAX_LINE, shorten
from toolscript.surfaces.mcp.definitions import SearchSkillsArguments, SearchToolsArguments

log = logging.getLogger(__name__)

MAX_SIGNATURE_LENGTH = 150
MAX_VARIANTS = 8
MAX_STARTING = 8

_NO_MODEL = "There is no embedding model, so skills cannot be searched: use search_tools without skill_ids."
_INCOMPLETE = "Some results could not be read and are left out."
_NOT_EMBEDDED = "The query could not be embedded, so nothing was searched: use strategy standard."
_NO_SKILLS = "Skills cannot be searched right now: searched everywhere."
_USE_CLOSEST = "If one of them serves the request, call it; otherwise tell the user that no connected tool does."
_NOTES = {
    SearchPart.EMBEDDER: "The query could not be embedded: found by words and names alone.",
    SearchPart.INDEX: "Tools cannot be searched right now: try again in a moment.",
    SearchPart.CATALOGUE: "Not every tool is indexed yet: try again in a moment for more.",
}


class ResultLine(NamedTuple):
    """A result as it is printed: `note` is the reason for it, or its skills; `need` is the part of the request that it
    serves; `variants` are the same tool of other servers; `server_arguments` tell its server from others like it."""

    id: str
    score: float
    note: str
    description: str
    need: str | None = None
    variants: Sequence[str] = ()
    server_arguments: str = ""


class FoundTools(NamedTuple):
    """What a search found, and what to say about it; without results, that is all. `closest` are not as sure as the
    threshold."""

    hits: Sequence[ResultLine]
    notes: Sequence[str] = ()
    closest: Sequence[ResultLine] = ()


async def search_tools(app: App, arguments: SearchToolsArguments, caller: Caller = OWNER) -> str:
    """Returns the results of `search_tools` as text, and notes them for feedback. Raises what `find_tools` raises."""
    found = await find_tools(app, arguments, caller)
    lines = await _format_results(app, found) if found.hits else list(found.notes)
    servers = [] if found.hits else await describe_servers(app, arguments.query)
    return "\n".join([*lines, *describe_closest(arguments.query, found), *servers, *describe_starting(app)])


async def describe_servers(app: App, query: str) -> list[str]:
    """Servers that are not connected and may serve the request, where the setting wants them named; never for a caller
    with a profile. An agent cannot add one."""
    if not app.settings.registry_hints or not app.catalogue.visibility.shows_registry(current_request()):
        return []
    try:
        hits = await app.registry.suggest(query)
    except ToolscriptError as error:
        log.info("registry_not_searched", extra={"reason": error.message})
        return []
    if not hits:
        return []
    lines = ["No connected tool does this; these servers, which are not connected, would:"]
    for hit in hits:
        entry = hit.entry
        about = f"{entry.version}, by {entry.publisher}, {entry.digest[:19]}"
        lines.append(f"{entry.name}  {hit.confidence:.2f}  {about}")
        lines.append(f"  {shorten(entry.description, MAX_LINE)}")
        if launch := next(iter(list_launches(entry)), None):
            what = launch.problem or "; ".join(filter(None, (describe_runs(launch), describe_needs(launch))))
            lines.append(f"  {shorten(what, 2 * MAX_LINE)}")
    return [*lines, f"You cannot add one. Tell the user: `toolscript servers add {hits[0].entry.name}` asks first."]


def describe_closest(query: str, found: FoundTools) -> list[str]:
    """The tools that are not as sure as the threshold, and what to do with them; empty if there are none."""
    if not found.closest:
        return []
    lines = [f"{hit.id}  {hit.score:.2f}  {shorten(hit.description, MAX_LINE)}".rstrip() for hit in found.closest]
    if found.hits:
        return ["Less sure:", *lines]
    return [f"No tool is a confident match for {query!r}. Closest:", *lines, _USE_CLOSEST]


def describe_starting(app: App) -> list[str]:
    """The last line of a search while servers are still starting; empty if there are none."""
    names = app.tools.overviews.list_starting()
    if not names:
        return []
    what = "Their tools are not included yet: search again in a few seconds."
    return [f"Still starting: {_join_names(names, MAX_STARTING)}. {what}"]


async def find_tools(app: App, arguments: SearchToolsArguments, caller: Caller) -> FoundTools:
    """Searches as `search_tools` does, and notes the results for feedback. Raises InvalidArguments for an unknown
    skill, and the errors of the services."""
    strategy = arguments.strategy or "standard"
    query = HierarchicalQuery(
        arguments.query,
        item_type=arguments.type,
        limit=arguments.limit,
        closest=MAX_CLOSEST,
        include_schemas=False,
        strategy=Strategy.DIRECT if strategy == "standard" else Strategy(strategy),
    )
    if arguments.skill_ids:
        return await _search_in_skills(app, query, caller, arguments.skill_ids)
    return await (_search_standard if strategy == "standard" else _search_with_skills)(app, query, caller)


async def search_skills(app: App, arguments: SearchSkillsArguments) -> str:
    """Returns the results of `search_skills` as text. Raises the errors of the service."""
    if app.model.embedder is None:
        return _NO_MODEL
    hits = await app.tools.hierarchical_search.find_skills(arguments.query, limit=arguments.limit)
    lines = [f"No skill fits {arguments.query!r}. search_tools without skill_ids searches everywhere."]
    if hits:
        lines = [*(line for hit in hits for line in _format_skill(hit)), _suggest_next_call(hits)]
    return "\n".join([*lines, *describe_starting(app)])


async def _search_standard(app: App, query: HierarchicalQuery, caller: Caller) -> FoundTools:
    found = await app.tools.search.search(
        query.query,
        limit=query.limit,
        threshold=app.settings.search_threshold,
        item_type=query.item_type,
        closest=query.closest,
    )
    hits, closest = (
        [
            ResultLine(
                hit.id, hit.confidence, hit.reason, hit.description, hit.need, hit.variants, hit.server_arguments
            )
            for hit in part
        ]
        for part in (found.hits, found.closest)
    )
    notes = _describe_degradation(found.report)
    if not hits and not notes and query.item_type is not None:  # results of other types may have displaced it
        return await _search_with_skills(app, query, caller)
    if hits or closest:
        app.tools.feedback.note_search(caller, query.query, found.ids)
        return FoundTools(hits, notes, closest)
    return FoundTools([], [*notes, _report_nothing(found.query, query.item_type)])


async def _search_with_skills(app: App, query: HierarchicalQuery, caller: Caller) -> FoundTools:
    found = await app.tools.hierarchical_search.search(query)
    app.tools.feedback.note_search(caller, query.query, found.ids)
    notes = _describe_degradation(found.report, {SearchPart.EMBEDDER: _NOT_EMBEDDED})
    if found.tools or found.closest:
        is_unfiltered = found.skill_ids_used is None and found.strategy is not Strategy.DIRECT
        notes = _describe_degradation(found.report, {SearchPart.INDEX: _NO_SKILLS if is_unfiltered else _INCOMPLETE})
        return FoundTools(_to_lines(found.tools), notes or _describe_scope(found), _to_lines(found.closest))
    return FoundTools([], notes or [*_describe_scope(found), _report_nothing(found.query, query.item_type)])


async def _search_in_skills(app: App, query: HierarchicalQuery, caller: Caller, skill_ids: Sequence[str]) -> FoundTools:
    existing = {counted.skill.id for counted in await app.catalogue.skills.all()}
    for skill_id in skill_ids:
        if skill_id not in existing:
            await _refuse_skill(app, skill_id)
    if app.model.embedder is None:
        return FoundTools([], [_NO_MODEL])
    hits = await app.tools.hierarchical_search.find_tools(query, skill_ids)
    app.tools.feedback.note_search(caller, query.query, [each for hit in hits for each in hit.ids])
    if not hits:
        everywhere = "search_tools without skill_ids searches everywhere."
        return FoundTools([], [f"Nothing in {', '.join(skill_ids)} fits {query.query!r}. {everywhere}"])
    return FoundTools(_to_lines(hits))


async def _refuse_skill(app: App, skill_id: str) -> None:
    try:
        await app.catalogue.skills.get(skill_id)
    except NotFound as error:
        near = " or ".join(error.details.get("nearest", ()))
        advice = f"did you mean {near}?" if near else "search_skills finds the ids"
        raise InvalidArguments(
            f"skill_ids: no such skill: {skill_id!r}: {advice}", details={"field": "skill_ids", **error.details}
        ) from error


async def _format_results(app: App, found: FoundTools) -> list[str]:
    """The notes, then for each hit: id, score, note, whether its server is asleep or stopped, and whether a person has
    to approve each call; signature, or why it cannot be called; description; the need that it serves; its variants."""
    items = await app.tools.listing.by_id([hit.id for hit in found.hits])
    # Some 50 ms for each of the worst schemas.
    signatures = await asyncio.to_thread(lambda: {each: format_signature(item) for each, item in items.items()})
    lines = list(found.notes)
    for hit in found.hits:
        state = app.servers.gateway.find_call_state(get_server(hit.id))
        mark = f"  ({state})" if state else ""
        approval = "  (needs approval)" if hit.id in items and app.tools.approvals.are_needed(items[hit.id]) else ""
        lines.append(f"{hit.id}  {hit.score:.2f}  {hit.note}{mark}{approval}")
        if hit.id in items and items[hit.id].quarantine:
            lines.append(f"  quarantined, cannot be called: {items[hit.id].quarantine}")
        elif hit.id in items and items[hit.id].type is ItemType.AGENT_SKILL:
            lines.append("  agent skill: read it with read_skill")
        elif hit.id in signatures:
            lines.append(f"  {shorten(signatures[hit.id], MAX_SIGNATURE_LENGTH)}")
        if hit.description:
            lines.append(f"  {shorten(hit.description, MAX_LINE)}")
        if hit.need:
            lines.append(f"  for: {shorten(hit.need, MAX_LINE)}")
        if hit.server_arguments:
            lines.append(f"  folder or address: {hit.server_arguments}")
        if hit.variants:
            lines.append(f"  same tool of other servers: {_join_names(hit.variants, MAX_VARIANTS)}")
    return lines


def _describe_degradation(report: SearchReport, notes: Mapping[SearchPart, str] | None = None) -> list[str]:
    notes = {**_NOTES, **(notes or {})}
    if report.servers_starting:  # the last line names them
        del notes[SearchPart.CATALOGUE]
    return [notes[part] for part in report.degraded if part in notes]


def _to_lines(tools: Sequence[HierarchicalHit]) -> list[ResultLine]:
    return [
        ResultLine(
            tool.id,
            tool.score,
            ", ".join(tool.payload.get("skill_ids") or ()) or "no skill",
            str(tool.payload.get("description") or ""),
            variants=tool.variants,
            server_arguments=tool.server_arguments,
        )
        for tool in tools
    ]


def _join_names(names: Sequence[str], limit: int) -> str:
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def _describe_scope(found: HierarchicalResults) -> list[str]:
    if found.strategy is Strategy.DIRECT:
        return []
    if found.skill_ids_used is None:
        return ["No skill fits: searched everywhere."]
    near = [f"{hit.skill.id} {hit.score:.2f}" for hit in found.skills]
    everywhere = ", and everywhere" if found.strategy is Strategy.HYBRID else ""
    return [f"Searched in skills: {', '.join(near)}{everywhere}."]


def _report_nothing(query: str, item_type: ItemType | None) -> str:
    what = (item_type or ItemType.TOOL).replace("_", " ")
    return f"No {what}s found for {query!r}. Rephrase once; then tell the user that no connected tool does this."


def _format_skill(hit: SkillHit) -> list[str]:
    skill = hit.skill
    count = "1 tool" if skill.tool_count == 1 else f"{skill.tool_count} tools"
    head = f"{skill.id}  {hit.score:.2f}  {count}  {shorten(skill.name, MAX_LINE)}"
    return [head, f"  {shorten(skill.description, MAX_LINE)}"] if skill.description else [head]


def _suggest_next_call(hits: Sequence[SkillHit]) -> str:
    filled = next((hit.skill.id for hit in hits if hit.skill.tool_count), None)
    if filled is None:
        return "None of them has tools: search_tools without skill_ids searches everywhere."
    return f'Next: search_tools with the ids that fit, as in skill_ids=["{filled}"].'
