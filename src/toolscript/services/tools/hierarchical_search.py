"""Hierarchical search: embed the query once, find the skills, find tools within them, read their schemas.

Each stage has a timeout and a fallback: a part that fails is named in the report and never fails the search.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from toolscript.domain.catalog import ItemType, Schema
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Invalid, ToolscriptError, Unavailable
from toolscript.domain.filters import Condition, Filter, Op, Payload, matches
from toolscript.domain.limits import current_limits
from toolscript.domain.profiles import Profile
from toolscript.domain.requests import RequestContext, current_request
from toolscript.domain.search import SearchPart, SearchReport
from toolscript.ports.observability import EventSink
from toolscript.retrieval.catalogue import CatalogueFacts
from toolscript.retrieval.fusion import put_needs_first, sort_scores
from toolscript.retrieval.query import QueryRules, check_range
from toolscript.retrieval.retriever import PreparedQuery
from toolscript.retrieval.skill_map import Scores, SkillFacts, SkillMap
from toolscript.retrieval.text.words import replace_unencodable
from toolscript.services.catalogue.snapshot import CatalogueSnapshot, CatalogueSnapshots, Change
from toolscript.services.catalogue.visibility import CountBySkill, View, count_everything
from toolscript.services.servers.starting_servers import StartingServers
from toolscript.services.support.result_cache import ResultCache
from toolscript.services.support.search_events import record_tool_search
from toolscript.services.tools.ranking import RankedTools, ToolRanking
from toolscript.services.tools.topics import EVERYWHERE, SearchArea, SkillHit, VisibleTopics, list_hits, match_skills
from toolscript.services.tools.variants import Variants

REQUIRED_FIELDS = ("type", "name", "description", "db_id")
PAYLOAD = (*REQUIRED_FIELDS, "is_active", "skill_ids", "skill_confidence", "primary_skill_id", "quarantine")
ACTIVE = Condition("is_active", Op.EQ, True)

FACTS_STAGE, SKILLS_STAGE, TOOLS_STAGE, SCHEMAS_STAGE = "catalogue_read", "skill_search", "tool_search", "schema_load"
# The part of the search that each stage depends on.
STAGE_PARTS = {
    FACTS_STAGE: SearchPart.CATALOGUE,
    SKILLS_STAGE: SearchPart.INDEX,
    TOOLS_STAGE: SearchPart.INDEX,
    SCHEMAS_STAGE: SearchPart.SCHEMAS,
}
RULES = QueryRules(has_content=str.strip, blank_error=Invalid)

T = TypeVar("T")

log = logging.getLogger(__name__)


class Strategy(StrEnum):
    """Search within the matched skills; everywhere; or both, and take the best of both."""

    HIERARCHICAL = "hierarchical"
    DIRECT = "direct"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class HierarchicalQuery:
    """A hierarchical search request."""

    query: str
    item_type: ItemType | None = None
    limit: int = 5
    skill_limit: int = 3
    skill_threshold: float = 0.4
    tool_threshold: float = 0.3
    closest: int = 0
    """How many tools below the threshold may follow where fewer than `limit` are above it."""
    include_schemas: bool = True
    strategy: Strategy = Strategy.HIERARCHICAL


class HierarchicalHit(NamedTuple):
    """A tool that was found. Schemas are read last, and only for the tools that are returned."""

    id: str
    score: float
    payload: Mapping[str, Any]
    input_schema: Schema | None = None
    output_schema: Schema | None = None
    annotations: Schema | None = None
    variants: tuple[str, ...] = ()
    """The same tool of other servers, in the order of the configuration."""
    server_arguments: str = ""
    """In what its server differs from others with a tool of the same definition: a folder, an address."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The tool and its variants."""
        return (self.id, *self.variants)

    @property
    def skills(self) -> Sequence[str]:
        """The ids of its skills."""
        return self.payload.get("skill_ids") or ()


class HierarchicalResults(NamedTuple):
    """The results of a hierarchical search."""

    query: str
    strategy: Strategy
    report: SearchReport
    tools: Sequence[HierarchicalHit] = ()
    closest: Sequence[HierarchicalHit] = ()
    """The nearest tools that are not as sure as the threshold."""
    skills: Sequence[SkillHit] = ()
    skill_ids_used: Sequence[str] | None = None
    candidates: int = 0
    """How many tools were compared with the query."""

    @property
    def ids(self) -> list[str]:
        """The tools of the answer and their variants, confident tools first."""
        return [each for hit in (*self.tools, *self.closest) for each in hit.ids]


# The versions of catalogue and configuration, the caller's profile, and the request: equal ones share their results.
_Key = tuple[int, int, Profile | None, HierarchicalQuery]


class _Run(NamedTuple):
    """A search that is running."""

    request: HierarchicalQuery
    prepared: PreparedQuery
    snapshot: CatalogueSnapshot
    catalogue: CatalogueFacts | None
    view: View
    report: SearchReport
    context: RequestContext


class _Found(NamedTuple):
    """What the search of tools found: the hits, the matched skills, the number of tools that were compared."""

    hits: Sequence[HierarchicalHit] = ()
    skills: Sequence[SkillHit] = ()
    candidates: int = 0


class HierarchicalSearch:
    """Finds tools, prompts and resources through the skills that they belong to."""

    def __init__(
        self,
        ranking: ToolRanking,
        snapshots: CatalogueSnapshots,
        starting: StartingServers | None = None,
        variants: Variants | None = None,
        events: EventSink | None = None,
        count_by_skill: CountBySkill = count_everything,
    ) -> None:
        """While servers are `starting`, reports say so. `count_by_skill` counts the tools that the caller may see."""
        self._ranking = ranking
        self._count_by_skill = count_by_skill
        self._snapshots = snapshots
        self._starting = starting
        self._variants = variants or Variants()
        self._events = events
        self.cache: ResultCache[_Key, HierarchicalResults] = ResultCache()
        self._visible: dict[tuple[Profile | None, ItemType | None], tuple[tuple[Any, ...], VisibleTopics]] = {}

    async def search(self, request: HierarchicalQuery) -> HierarchicalResults:
        """The best tools, most confident first.

        Raises Invalid for a blank query, InvalidArguments for a query too long or a number out of range.
        """
        query, context = replace_unencodable(request.query), current_request()
        if query != request.query:
            request = replace(request, query=query)
        report = SearchReport()
        await self._wait_for_first_listing()
        with record_tool_search(self._events, "hierarchical.search", query, report, context):
            return await self._search_recorded(request, report, context)

    async def _search_recorded(
        self, request: HierarchicalQuery, report: SearchReport, context: RequestContext
    ) -> HierarchicalResults:
        _check(request)
        with report.stage("total"):
            snapshot, view = self._snapshots.current(), await self._ranking.find_view(context)
            key = snapshot.version, self._variants.get_version(), view.profile, request
            search = partial(self._search_new, request, snapshot, context)
            results = await self.cache.find_or_search(key, search, lambda: snapshot.is_complete, report)
            results = results._replace(report=report)
        if request.strategy is not Strategy.DIRECT and results.skill_ids_used is None and not report.degraded:
            log.warning("No skills matched, falling back to unfiltered search")
        if self._starting:
            self._starting.add_to(report)
        report.counts["returned"] = len(results.tools)
        return results

    async def _search_new(
        self, request: HierarchicalQuery, snapshot: CatalogueSnapshot, context: RequestContext
    ) -> HierarchicalResults:
        return await self._search(await self._begin(request, snapshot, context))

    async def find_skills(self, query: str, *, limit: int = 5, threshold: float = 0.4) -> list[SkillHit]:
        """Stage one alone. Raises as `search` does, and Unavailable when skills cannot be searched."""
        report, context = SearchReport(), current_request()
        await self._wait_for_first_listing()
        with record_tool_search(self._events, "skills.search", query, report, context):
            request = HierarchicalQuery(query, skill_limit=limit, skill_threshold=threshold)
            _check(request, max_skills=50)
            run = await self._begin(request, self._snapshots.current(), context)
            hits = await self._find_skills(run)
            report.timings_ms.update(run.report.timings_ms)
            _require_complete(run.report, "skills")
            report.counts["returned"] = len(hits)
        return hits

    async def find_tools(
        self, request: HierarchicalQuery, skill_ids: Sequence[str] | None = None
    ) -> Sequence[HierarchicalHit]:
        """Stage two alone, within `skill_ids`. Raises as `search` does, and Unavailable when the index fails, or has no
        result while tools are still being indexed."""
        report, context = SearchReport(), current_request()
        await self._wait_for_first_listing()
        with record_tool_search(self._events, "hierarchical.search", request.query, report, context):
            _check(request)
            run = await self._begin(replace(request, strategy=Strategy.DIRECT), self._snapshots.current(), context)
            hits = (await self._find_tools(run, SearchArea(skill_ids=skill_ids))).hits
            report.timings_ms.update(run.report.timings_ms)
            if not hits:
                _require_complete(run.report, "tools")
                if self._starting and self._starting.gateway.is_incomplete:
                    names = self._starting.list_names()
                    which = f" ({', '.join(names)} still starting)" if names else ""
                    raise Unavailable(
                        f"nothing found yet, and tools are still being indexed{which}: try again in a moment",
                        details={"degraded": [SearchPart.CATALOGUE], "servers_starting": names},
                    )
            report.counts["returned"] = len(hits)
        return hits

    async def _wait_for_first_listing(self) -> None:
        if self._starting:
            await self._starting.gateway.wait_for_first_listing()

    async def _begin(self, request: HierarchicalQuery, snapshot: CatalogueSnapshot, context: RequestContext) -> _Run:
        report, deadline = SearchReport(), Deadline(current_limits().tool_embedding, "tools")
        # Without the facts the search ranks by meaning alone.
        catalogue = await _run_stage(report, FACTS_STAGE, current_limits().tools_stage, snapshot.facts(), None)
        prepared = await self._ranking.prepare(request.query, catalogue, report, deadline, RULES)
        return _Run(request, prepared, snapshot, catalogue, await self._ranking.find_view(context), report, context)

    async def _search(self, run: _Run) -> HierarchicalResults:
        request = run.request
        if run.prepared.vector is None:
            return HierarchicalResults(request.query, request.strategy, run.report)
        area = await self._find_topics(run) if request.strategy is not Strategy.DIRECT else EVERYWHERE
        hits, skills, candidates = await self._find_tools(run, area)
        ids = [hit.skill.id for hit in skills] or None
        sure = [hit for hit in hits if hit.score >= request.tool_threshold]
        near = hits[len(sure) :]
        if request.include_schemas and sure:
            enriched = _add_schemas(sure, run)
            sure = await _run_stage(run.report, SCHEMAS_STAGE, current_limits().schemas_stage, enriched, sure)
        return HierarchicalResults(request.query, request.strategy, run.report, sure, near, skills, ids, candidates)

    async def _find_topics(self, run: _Run) -> SearchArea:
        work = self._choose_topics(run)
        return await _run_stage(run.report, SKILLS_STAGE, current_limits().skills_stage, work, EVERYWHERE)

    async def _choose_topics(self, run: _Run) -> SearchArea:
        """The tools of the nearest topics, and the skills that they may belong to; everywhere if no skill is near."""
        skill_map, scores = await self._compare_skills(run)
        skills = await self._rank_skills(run, skill_map, scores)
        if not list_hits(skills, run.request.skill_threshold):
            return EVERYWHERE
        topics = self._find_visible(skill_map, run)
        tools = topics.choose_tools(skill_map.score_topics(scores))
        return SearchArea(skills, tools, skill_map.skills_of, topics.new)

    def _find_visible(self, skill_map: SkillMap, run: _Run) -> VisibleTopics:
        """The topics as the caller sees them, made once for each version of the catalogue."""
        key, made_of = (run.view.profile, run.request.item_type), (skill_map, run.catalogue, run.view.ids)
        if key not in self._visible or any(a is not b for a, b in zip(self._visible[key][0], made_of, strict=True)):
            self._visible = {k: each for k, each in self._visible.items() if each[0][0] is skill_map}
            self._visible[key] = made_of, VisibleTopics(*made_of[:2], run.view, run.request.item_type)
        return self._visible[key][1]

    async def _find_skills(self, run: _Run) -> list[SkillHit]:
        async def work() -> list[SkillHit]:
            skill_map, scores = await self._compare_skills(run)
            skills = await self._rank_skills(run, skill_map, scores)
            return list_hits(skills, run.request.skill_threshold)[: run.request.skill_limit]

        return await _run_stage(run.report, SKILLS_STAGE, current_limits().skills_stage, work(), [])

    async def _compare_skills(self, run: _Run) -> tuple[SkillMap, Scores]:
        skill_map = await run.snapshot.skill_map()
        if run.prepared.vector is None:
            raise Unavailable("the query has no vector")
        try:
            return skill_map, skill_map.compare(run.prepared.vector, [need.vector for need in run.prepared.needs])
        except ValueError as error:
            self._snapshots.advance(Change.SKILLS)  # the map was read from vectors of another model: read it again
            raise Unavailable(f"the skills' vectors do not fit the query's: {error}") from error

    async def _rank_skills(self, run: _Run, skill_map: SkillMap, scores: Scores) -> list[tuple[SkillFacts, float]]:
        """The skills that the caller sees, best first."""
        near, counts = skill_map.rank_skills(scores), await self._count_by_skill(run.context)
        if counts is not None:
            near = [(replace(s, tool_count=counts[s.id]), score) for s, score in near if counts.get(s.id)]
        return near

    async def _find_tools(self, run: _Run, area: SearchArea) -> _Found:
        """The best tools, confident tools first, their skills, and how many were compared; none without a vector."""
        if run.prepared.vector is None:
            return _Found()
        nothing = _Found(skills=list_hits(area.skills, run.request.skill_threshold)[: run.request.skill_limit])
        work = self._rank_tools(run, area)
        return await _run_stage(run.report, TOOLS_STAGE, current_limits().tools_stage, work, nothing)

    async def _rank_tools(self, run: _Run, area: SearchArea) -> _Found:
        is_merged = run.request.strategy is Strategy.HYBRID and area.tools is not None
        if is_merged:
            (inside, _), (everywhere, all_ranked) = await asyncio.gather(
                self._rank_within(run, area), self._rank_within(run, EVERYWHERE)
            )
            best = {i: max(score, inside.get(i, 0.0)) for i, score in everywhere.items()}
            ranked, needs = sort_scores({**inside, **best}), all_ranked.legs.needs
            if run.catalogue:
                ranked = run.catalogue.near_equals.order(ranked, all_ranked.named, all_ranked.moves)
        else:
            found, ranking = await self._rank_within(run, area)
            ranked, needs = list(found.items()), ranking.legs.needs
        if run.catalogue:
            ranked = self._variants.fold(ranked, run.catalogue)
        ranked = put_needs_first(ranked, needs)
        kept, skills = match_skills(area, ranked, run.request.skill_limit, run.request.skill_threshold)
        chosen = self._choose(run, ranked if is_merged else kept)
        payloads = await self._ranking.read_payloads([i for i, _ in chosen], PAYLOAD)
        hits = [
            self._add_variants(run, HierarchicalHit(i, score, _read_payload(run, i, payloads))) for i, score in chosen
        ]
        usable = [hit for hit in hits if None not in map(hit.payload.get, REQUIRED_FIELDS)]
        if len(usable) < len(hits):
            _note_failure(
                run.report, TOOLS_STAGE, "some tools lack fields in the index: run `toolscript index rebuild`"
            )
        if run.request.strategy is not Strategy.HYBRID:  # without those that left these skills meanwhile
            where = _build_filter(run.request.item_type, area.skill_ids)
            usable = [hit for hit in usable if matches(where, hit.payload) and area.keeps(hit.id, hit.skills, skills)]
        return _Found(usable, skills, await self._count_compared(run, area) if usable else 0)

    async def _count_compared(self, run: _Run, area: SearchArea) -> int:
        """The number of compared tools: the tools of the area, or all tools of this type that the caller may see,
        whatever engine ranked them."""
        if area.tools is not None and run.request.strategy is not Strategy.HYBRID:
            return len(area.tools)
        where = _build_filter(run.request.item_type, area.skill_ids)
        return await self._ranking.count_tools(replace(where, within=run.view.subset), run.catalogue)

    def _choose(self, run: _Run, ranked: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
        """The tools of the answer: tools at or above the threshold, then the closest."""
        request, catalogue = run.request, run.catalogue
        sure = [each for each in ranked if each[1] >= request.tool_threshold][: request.limit]
        if catalogue:
            ranked = [(i, score) for i, score in ranked if i in catalogue.items and not catalogue.items[i].quarantine]
        room = min(request.closest, request.limit - len(sure))
        return [*sure, *self._ranking.choose_closest(ranked, request.tool_threshold, room)]

    def _add_variants(self, run: _Run, hit: HierarchicalHit) -> HierarchicalHit:
        if run.catalogue is None or not run.catalogue.variants:
            return hit
        variants = self._variants.list_ids(hit.id, run.catalogue, run.view)
        return hit._replace(
            variants=variants, server_arguments=self._variants.describe_arguments(hit.id, run.catalogue)
        )

    async def _rank_within(self, run: _Run, area: SearchArea) -> tuple[dict[str, float], RankedTools]:
        """The scores of these tools, best first, and what is known of their ranking."""
        ask, steps = run.request, await run.snapshot.steps()
        where = _build_filter(ask.item_type, area.skill_ids)
        ranked = await self._ranking.rank(
            ask.query, run.prepared, run.catalogue, run.report, run.view, where=where, among=area.tools, steps=steps
        )
        found = dict(ranked.best)
        # Names are matched in the whole catalogue.
        named = list(found.keys() - {c.id for leg in (ranked.legs.dense, ranked.legs.lexical) for c in leg})
        if named:
            payloads = await self._ranking.read_payloads(named)
            outside = {i for i in named if not matches(where, payloads.get(i, {}))}
            found = {i: score for i, score in found.items() if i not in outside}
        return found, ranked


def _read_payload(run: _Run, item_id: str, payloads: Mapping[str, Payload]) -> Payload:
    """What the index says of a tool. What is in quarantine, the catalogue knows first."""
    payload, catalogue = payloads.get(item_id) or {}, run.catalogue
    if catalogue is None or item_id not in catalogue.items:
        return payload
    return {**payload, "quarantine": catalogue.items[item_id].quarantine}


async def _add_schemas(hits: Sequence[HierarchicalHit], run: _Run) -> list[HierarchicalHit]:
    schemas = await run.snapshot.schemas([hit.id for hit in hits])
    missing = [item_id for item_id, found in schemas.items() if found is None]
    if missing:
        _note_failure(run.report, SCHEMAS_STAGE, f"{missing[0]} is no longer in the catalogue")
    none = None, None, None
    found = ((hit, *(schemas[hit.id] or none)) for hit in hits)
    return [hit._replace(input_schema=given, output_schema=out, annotations=notes) for hit, given, out, notes in found]


async def _run_stage(report: SearchReport, name: str, seconds: float, work: Coroutine[Any, Any, T], fallback: T) -> T:
    """Times a stage; returns the fallback when it raises, takes too long, or gets an unusable response."""
    with report.stage(name):
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            _note_failure(report, name, f"no response within {seconds:g} s")
        except ToolscriptError as error:
            _note_failure(report, name, error.message)
        except Exception as error:  # an adapter that returns garbage must not fail a search
            log.debug("stage_fault", exc_info=error)
            _note_failure(report, name, f"{type(error).__name__}: {error}")
    return fallback


def _note_failure(report: SearchReport, stage: str, reason: str) -> None:
    report.degrade(STAGE_PARTS[stage])
    log.warning("stage_failed", extra={"stage": stage, "reason": reason})


def _require_complete(report: SearchReport, what: str) -> None:
    if {SearchPart.EMBEDDER, SearchPart.INDEX} & set(report.degraded):
        part = "embedding model" if SearchPart.EMBEDDER in report.degraded else "index"
        raise Unavailable(
            f"{what} cannot be searched right now: the {part} does not respond. Try again in a moment; the log has "
            "the reason",
            details={"degraded": list(report.degraded)},
        )


def _build_filter(item_type: ItemType | None, skill_ids: Sequence[str] | None) -> Filter:
    must = [ACTIVE]
    if item_type is not None:
        must.append(Condition("type", Op.EQ, item_type.value))
    if skill_ids is not None:
        must.append(Condition("skill_ids", Op.IN, list(skill_ids)))
    return Filter(must=tuple(must))


def _check(request: HierarchicalQuery, *, max_skills: int = 10) -> None:
    RULES.check(request.query)
    check_range("limit", request.limit, 1, 50)
    check_range("skill_limit", request.skill_limit, 1, max_skills)
    check_range("skill_threshold", request.skill_threshold, 0, 1)
    check_range("tool_threshold", request.tool_threshold, 0, 1)
