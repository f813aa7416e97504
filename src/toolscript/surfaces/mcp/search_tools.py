"""The searches for tools of the MCP surface: arguments read, one service asked, the answer told in a few short lines.

Answers are kept short on purpose: every line of them is paid for in the agent's context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolscript.app.app import App
from toolscript.codegen.signatures import format_signature
from toolscript.domain.catalog import ItemType
from toolscript.domain.errors import InvalidArguments, NotFound
from toolscript.domain.search import DEGRADED_CATALOGUE, SearchReport
from toolscript.services.tools.hierarchical_search import (
    EMBEDDING,
    SKILLS_STAGE,
    TOOLS_STAGE,
    HierarchicalHit,
    HierarchicalQuery,
    HierarchicalResults,
    SkillHit,
    Strategy,
)
from toolscript.surfaces.mcp.definitions import (
    DEFAULT_RESULTS,
    MOST_RESULTS,
    MOST_SKILL_IDS,
    STANDARD,
    STRATEGIES,
    TYPES,
)

LONGEST_DESCRIPTION = 110
LONGEST_SIGNATURE = 150
# How many results of the standard search are looked through for those of one type.
LOOKED_THROUGH = 100

_FINDS_IDS = "search_skills tells the ids that there are"
_NO_MODEL = "There is no embedding model, so skills cannot be searched: use search_tools without skill_ids."
_TRY_AGAIN = "Try other words once; then nothing here does that."
_SOME_ARE_MISSING = "Some results could not be read just now, and are left out."
_WITHOUT = {
    "embedder": "The query could not be embedded: found by words and names alone.",
    EMBEDDING: "The query could not be embedded, so nothing was searched: use strategy standard.",
    SKILLS_STAGE: "Skills could not be searched just now: looked everywhere.",
    TOOLS_STAGE: "Tools could not be searched just now: try again in a moment.",
    DEGRADED_CATALOGUE: "Not every tool is indexed yet: in a moment there may be more.",
}


@dataclass(frozen=True, slots=True)
class _Hit:
    """A hit as it is told: why is what its line ends with."""

    id: str
    score: float
    why: str
    description: str


async def search_tools(app: App, arguments: Mapping[str, Any]) -> str:
    """What `search_tools` answers. Raises InvalidArguments, naming the argument, and what the services raise."""
    query, limit = wanted(arguments, "query"), limit_of(arguments)
    kind = one_of(arguments, "type", TYPES)
    item_type = None if kind is None else ItemType(kind)
    strategy = one_of(arguments, "strategy", STRATEGIES) or STANDARD
    skill_ids = _skill_ids(arguments, strategy)
    if skill_ids:
        return await _inside(app, HierarchicalQuery(query, item_type=item_type, limit=limit), skill_ids)
    if strategy == STANDARD:
        return await _standard(app, query, limit, item_type)
    return await _by_meaning(app, query, limit, item_type, Strategy(strategy))


async def search_skills(app: App, arguments: Mapping[str, Any]) -> str:
    """What `search_skills` answers. Raises InvalidArguments, naming the argument, and what the service raises."""
    query, limit = wanted(arguments, "query"), limit_of(arguments)
    if app.model.embedder is None:
        return _NO_MODEL
    hits = await app.hierarchical_search.find_skills(query, limit=limit)
    if not hits:
        return f"No skill fits {query!r}. search_tools without skill_ids looks everywhere."
    return "\n".join([*(line for hit in hits for line in _skill_lines(hit)), _next(hits)])


def wanted(arguments: Mapping[str, Any], name: str) -> str:
    """A text that must be given. Raises InvalidArguments."""
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidArguments(f"{name}: give a text", details={"field": name})
    return value


async def _standard(app: App, query: str, limit: int, item_type: ItemType | None) -> str:
    most = limit if item_type is None else LOOKED_THROUGH
    found = await app.tool_search.search(query, limit=most, threshold=app.settings.search_threshold)
    hits = [
        _Hit(hit.id, hit.confidence, hit.reason, hit.description)
        for hit in found.hits
        if item_type is None or hit.type == item_type
    ][:limit]
    lines = _done_without(found.report)
    if not hits and not lines and item_type is not None:  # other types may have crowded it out
        return await _by_meaning(app, query, limit, item_type, Strategy.DIRECT)
    return await _told(app, lines, hits) if hits else "\n".join([*lines, _nothing(found.query, item_type)])


async def _by_meaning(app: App, query: str, limit: int, item_type: ItemType | None, strategy: Strategy) -> str:
    found = await app.hierarchical_search.search(
        HierarchicalQuery(query, item_type=item_type, limit=limit, include_schemas=False, strategy=strategy)
    )
    without = _done_without(found.report)
    if found.tools:
        missing = [_SOME_ARE_MISSING] if TOOLS_STAGE in found.report.degraded else without
        return await _told(app, missing or _looked_in(found), _hits(found.tools))
    return "\n".join(without or [*_looked_in(found), _nothing(found.query, item_type)])


async def _inside(app: App, ask: HierarchicalQuery, skill_ids: Sequence[str]) -> str:
    known = {counted.skill.id for counted in await app.skills.all()}
    for skill_id in skill_ids:
        if skill_id not in known:
            await _refuse(app, skill_id)
    if app.model.embedder is None:
        return _NO_MODEL
    found = await app.hierarchical_search.find_tools(ask, skill_ids)
    if not found:
        return f"Nothing in {', '.join(skill_ids)} fits {ask.query!r}. Without skill_ids it is looked for everywhere."
    return await _told(app, [], _hits(found))


async def _refuse(app: App, skill_id: str) -> None:
    try:
        await app.skills.get(skill_id)
    except NotFound as error:
        near = " or ".join(error.details.get("nearest", ()))
        told = f"skill_ids: there is no skill {skill_id!r}: {f'did you mean {near}?' if near else _FINDS_IDS}"
        raise InvalidArguments(told, details={"field": "skill_ids", **error.details}) from error


async def _told(app: App, lines: Sequence[str], hits: Sequence[_Hit]) -> str:
    """The hits after those lines, a few short lines each: id, score and reason; signature; description."""
    items = await app.list_tools.by_id([hit.id for hit in hits])
    told = list(lines)
    for hit in hits:
        told.append(f"{hit.id}  {hit.score:.2f}  {hit.why}")
        if hit.id in items:
            told.append(f"  {short(format_signature(items[hit.id]), LONGEST_SIGNATURE)}")
        if hit.description:
            told.append(f"  {short(hit.description, LONGEST_DESCRIPTION)}")
    return "\n".join(told)


def _done_without(report: SearchReport) -> list[str]:
    return [_WITHOUT[name] for name in dict.fromkeys(report.degraded) if name in _WITHOUT]


def _hits(tools: Sequence[HierarchicalHit]) -> list[_Hit]:
    return [_Hit(t.id, t.score, _skills_of(t), str(t.payload.get("description") or "")) for t in tools]


def _skills_of(tool: HierarchicalHit) -> str:
    return ", ".join(tool.payload.get("skill_ids") or ()) or "no skill"


def _looked_in(found: HierarchicalResults) -> list[str]:
    if found.strategy is Strategy.DIRECT:
        return []
    if found.skill_ids_used is None:
        return ["No skill fits: looked everywhere."]
    near = [f"{hit.skill.id} {hit.score:.2f}" for hit in found.skills if hit.is_near]
    everywhere = ", and everywhere" if found.strategy is Strategy.HYBRID else ""
    return [f"Looked in skills: {', '.join(near)}{everywhere}."]


def _nothing(query: str, item_type: ItemType | None) -> str:
    return f"No {item_type or ItemType.TOOL}s found for {query!r}. {_TRY_AGAIN}"


def _skill_lines(hit: SkillHit) -> list[str]:
    skill = hit.skill
    count = "1 tool" if skill.tool_count == 1 else f"{skill.tool_count} tools"
    head = f"{skill.id}  {hit.score:.2f}  {count}  {short(skill.name, LONGEST_DESCRIPTION)}"
    return [head, f"  {short(skill.description, LONGEST_DESCRIPTION)}"] if skill.description else [head]


def _next(hits: Sequence[SkillHit]) -> str:
    filled = next((hit.skill.id for hit in hits if hit.skill.tool_count), None)
    if filled is None:
        return "None of them has tools: search_tools without skill_ids looks everywhere."
    return f'Next: search_tools with the ids that fit, as in skill_ids=["{filled}"].'


def limit_of(arguments: Mapping[str, Any]) -> int:
    """How many results are wanted at most. Raises InvalidArguments."""
    limit = arguments.get("limit", DEFAULT_RESULTS)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_RESULTS:
        raise InvalidArguments(f"limit: give a whole number from 1 to {MOST_RESULTS}", details={"field": "limit"})
    return limit


def one_of(arguments: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str | None:
    """One of those words, or None where it is left out. Raises InvalidArguments."""
    value = arguments.get(name)
    if value is not None and value not in allowed:
        raise InvalidArguments(
            f"{name}: give one of {', '.join(allowed)}, or leave it out",
            details={"field": name, "allowed": list(allowed)},
        )
    return value


def _skill_ids(arguments: Mapping[str, Any], strategy: str) -> list[str]:
    given = arguments.get("skill_ids")
    if given is None:
        return []
    texts = [each.strip() for each in given if isinstance(each, str)] if isinstance(given, list) else []
    if not isinstance(given, list) or len(texts) < len(given) or not all(texts) or len(texts) > MOST_SKILL_IDS:
        raise InvalidArguments(
            f"skill_ids: give a list of at most {MOST_SKILL_IDS} ids from search_skills, or leave it out",
            details={"field": "skill_ids", "most": MOST_SKILL_IDS},
        )
    if texts and strategy in {Strategy.DIRECT, Strategy.HYBRID}:
        raise InvalidArguments(
            f"strategy: {strategy} looks outside skills, so it does not go with skill_ids: leave one of them out",
            details={"field": "strategy"},
        )
    return list(dict.fromkeys(texts))


def short(text: str, most: int) -> str:
    """The text in one line, cut where it is too long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1].rstrip() + "…"
