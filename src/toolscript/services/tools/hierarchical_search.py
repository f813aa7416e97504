"""Hierarchical search, one straight line: embed once, find the skills, find tools within them, read their schemas.

Each stage has its time and its fallback; whatever had to be done without is named in the answer and never fails it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from toolscript.domain.catalog import ItemType, Schema
from toolscript.domain.errors import Invalid, InvalidArguments, ToolscriptError, Unavailable
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.domain.search import Candidate, SearchPart, SearchReport, sort_candidates
from toolscript.retrieval.calibration import calibrate, find_cosine
from toolscript.retrieval.deadline import Deadline
from toolscript.retrieval.query import QueryRules
from toolscript.retrieval.retriever import PreparedQuery, Retriever, Stage
from toolscript.retrieval.skill_map import SkillFacts
from toolscript.retrieval.text.words import replace_unencodable
from toolscript.services.catalogue.tool_points import TOOLS
from toolscript.services.support.result_cache import ResultCache
from toolscript.services.tools.schema_cache import KnownSchemas
from toolscript.services.tools.skill_finder import SkillFinder

# The most that are looked at before the limit: what is beyond is not counted.
DEPTH = 100
# Skills that score this much less than the best one are matched, but not searched: their tools would hardly be among
# the best (docs/decisions/0011). The best may score more than 1 before that is cut off.
NEAR_THE_BEST = 0.62
NEEDED = ("type", "name", "description", "db_id")
PAYLOAD = (*NEEDED, "skill_ids", "primary_skill_id")
ACTIVE = Condition("is_active", Op.EQ, True)

# Thresholds are held against scores as they are told: a score that was told, given as a threshold, keeps its tool.
DIGITS = 4

SKILLS_STAGE, TOOLS_STAGE, SCHEMAS_STAGE = "skill_search", "tool_search", "schema_load"
# The part of the search that each stage depends on.
STAGE_PARTS = {
    SKILLS_STAGE: SearchPart.INDEX,
    TOOLS_STAGE: SearchPart.INDEX,
    SCHEMAS_STAGE: SearchPart.SCHEMAS,
}
RULES = QueryRules(has_content=str.strip, blank_error=Invalid)

T = TypeVar("T")

log = logging.getLogger(__name__)


class Strategy(StrEnum):
    """Whether skills narrow the search down: they do; they are left aside; both, and the best of both counts."""

    HIERARCHICAL = "hierarchical"
    DIRECT = "direct"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class StageTimeouts:
    """How many seconds each stage may take."""

    embedding: float = 10.0
    skills: float = 2.0
    tools: float = 5.0
    schemas: float = 2.0


@dataclass(frozen=True, slots=True)
class HierarchicalQuery:
    """What is asked for."""

    query: str
    item_type: ItemType | None = None
    limit: int = 5
    skill_limit: int = 3
    skill_threshold: float = 0.4
    tool_threshold: float = 0.3
    include_schemas: bool = True
    strategy: Strategy = Strategy.HIERARCHICAL


class SkillHit(NamedTuple):
    """A skill that the query is about."""

    skill: SkillFacts
    score: float
    is_near: bool = True
    """Whether it is near enough to the best one for its tools to be searched."""


class HierarchicalHit(NamedTuple):
    """A tool that was found; its schemas are read last, for those that are returned alone."""

    id: str
    score: float
    payload: Mapping[str, Any]
    input_schema: Schema | None = None
    output_schema: Schema | None = None
    annotations: Schema | None = None


class HierarchicalResults(NamedTuple):
    """The answer to a hierarchical search."""

    query: str
    strategy: Strategy
    report: SearchReport
    tools: Sequence[HierarchicalHit] = ()
    skills: Sequence[SkillHit] = ()
    skill_ids_used: Sequence[str] | None = None
    candidates: int = 0


NOTHING: tuple[list[HierarchicalHit], int] = [], 0


class HierarchicalSearch:
    """Finds tools, prompts and resources through the skills that they belong to."""

    def __init__(
        self,
        retriever: Retriever,
        skills: SkillFinder,
        answers: ResultCache[HierarchicalQuery, HierarchicalResults],
        schemas: KnownSchemas,
        timeouts: StageTimeouts | None = None,
        is_incomplete: Callable[[], bool] = lambda: False,
    ) -> None:
        """While `is_incomplete` says so, more tools are on their way, and answers tell that."""
        self._retriever = retriever
        self._skills = skills
        self._answers = answers
        self._schemas = schemas
        self._timeouts = timeouts or StageTimeouts()
        self._is_incomplete = is_incomplete
        self._under_way: dict[tuple[HierarchicalQuery, int], asyncio.Future[HierarchicalResults | None]] = {}

    async def search(self, ask: HierarchicalQuery) -> HierarchicalResults:
        """The best tools, most similar first.

        Raises Invalid for a blank query, InvalidArguments for what is too long or out of range.
        """
        _check(ask)
        query = replace_unencodable(ask.query)
        if query != ask.query:
            ask = replace(ask, query=query)
        report = SearchReport()
        with Stage(report, "total"):
            known = self._answers.find(ask)
            if known is None:
                known = await self._joined(ask)
                report.timings_ms.update(known.report.timings_ms)
                report.degraded += known.report.degraded
            found = known._replace(report=report)
        if ask.strategy is not Strategy.DIRECT and found.skill_ids_used is None and not report.degraded:
            log.warning("No skills matched, falling back to unfiltered search")
        if self._is_incomplete():
            report.degrade(SearchPart.CATALOGUE)
        return found

    async def _joined(self, ask: HierarchicalQuery) -> HierarchicalResults:
        """The answer that somebody else is waiting for already, or else a new one: asked by many at once, it is looked
        for once."""
        at = self._answers.now()
        question = ask, at[0]
        while (under_way := self._under_way.get(question)) is not None:
            found = await asyncio.shield(under_way)
            if found is not None:
                return found
        answer = self._under_way[question] = asyncio.get_running_loop().create_future()
        found = None
        try:
            found = await self._searched(ask, SearchReport())
        finally:  # whoever looked for it may have gone away: then the next one who waits has to
            del self._under_way[question]
            answer.set_result(found)
        if not found.report.degraded:
            self._answers.keep(ask, found, at)
        return found

    async def find_skills(self, query: str, *, limit: int = 5, threshold: float = 0.4) -> list[SkillHit]:
        """Stage one alone. Raises as `search` does, and Unavailable when skills cannot be searched."""
        ask = HierarchicalQuery(query, skill_limit=limit, skill_threshold=threshold)
        _check(ask, most_skills=50)
        report = SearchReport()
        prepared = await self._prepare(query, report)
        hits = await _bounded(report, SKILLS_STAGE, self._timeouts.skills, self._near(prepared, ask), [])
        _require(report, "skills")
        return hits

    async def find_tools(self, ask: HierarchicalQuery, skill_ids: Sequence[str] | None = None) -> list[HierarchicalHit]:
        """Stage two alone, within those skills. Raises as `search` does, and Unavailable when there is no index, or
        nothing in one that is not complete yet."""
        _check(ask)
        report = SearchReport()
        prepared = await self._prepare(ask.query, report)
        work = self._ranked(prepared, replace(ask, strategy=Strategy.DIRECT), skill_ids, report)
        tools, _ = await _bounded(report, TOOLS_STAGE, self._timeouts.tools, work, NOTHING)
        if not tools:
            _require(report, "tools")
            if self._is_incomplete():
                raise Unavailable(
                    "nothing was found, and not every tool is indexed yet: try again in a moment",
                    details={"degraded": [SearchPart.CATALOGUE]},
                )
        return tools

    async def _searched(self, ask: HierarchicalQuery, report: SearchReport) -> HierarchicalResults:
        prepared = await self._prepare(ask.query, report)
        if prepared.vector is None:
            return HierarchicalResults(ask.query, ask.strategy, report)
        skills: list[SkillHit] = []
        if ask.strategy is not Strategy.DIRECT:
            skills = await _bounded(report, SKILLS_STAGE, self._timeouts.skills, self._near(prepared, ask), [])
        ids = [hit.skill.id for hit in skills if hit.is_near] or None
        work = self._ranked(prepared, ask, ids, report)
        tools, candidates = await _bounded(report, TOOLS_STAGE, self._timeouts.tools, work, NOTHING)
        if ask.include_schemas and tools:
            enriched = self._enriched(tools, report)
            tools = await _bounded(report, SCHEMAS_STAGE, self._timeouts.schemas, enriched, tools)
        return HierarchicalResults(ask.query, ask.strategy, report, tools, skills, ids, candidates)

    async def _prepare(self, query: str, report: SearchReport) -> PreparedQuery:
        return await self._retriever.prepare(query, Deadline(self._timeouts.embedding, "tools"), report, rules=RULES)

    async def _near(self, prepared: PreparedQuery, ask: HierarchicalQuery) -> list[SkillHit]:
        if prepared.vector is None:
            return []
        skill_map = await self._skills.map()
        try:
            near = skill_map.nearest(prepared.vector, ask.skill_limit, _least(ask.skill_threshold))
        except ValueError as error:
            self._skills.changed()  # it was drawn from something else than this model's vectors
            raise Unavailable(f"the skills' vectors do not fit the query's: {error}") from error
        hits = [
            SkillHit(skill, round(min(1.0, max(0.0, score)), DIGITS), score >= near[0][1] - NEAR_THE_BEST)
            for skill, score in near
        ]
        return [hit for hit in hits if hit.score >= ask.skill_threshold]

    async def _ranked(
        self, prepared: PreparedQuery, ask: HierarchicalQuery, skill_ids: Sequence[str] | None, report: SearchReport
    ) -> tuple[list[HierarchicalHit], int]:
        """The best tools, and how many there were to choose from."""
        if ask.strategy is Strategy.HYBRID and skill_ids is not None:
            (inside, _), (everywhere, candidates) = await asyncio.gather(
                self._within(prepared, ask, skill_ids), self._within(prepared, ask, None)
            )
            best = {c.id: c for c in everywhere}
            best.update((c.id, c) for c in inside if c.id not in best or c.score > best[c.id].score)
            found = sort_candidates(list(best.values()))[: ask.limit]
        else:
            found, candidates = await self._within(prepared, ask, skill_ids)
        tools = self._told(found, ask, report)
        return tools, candidates - (len(found) - len(tools)) if tools else 0

    def _told(self, found: Sequence[Candidate], ask: HierarchicalQuery, report: SearchReport) -> list[HierarchicalHit]:
        """The candidates as tools; one that tells too little of itself is left out, and that is told."""
        whole = [c for c in found if math.isfinite(c.score) and None not in map(c.payload.get, NEEDED)]
        if len(whole) < len(found):
            _done_without(
                report, TOOLS_STAGE, "the index tells too little of some tools: run `toolscript index rebuild`"
            )
        similarity = self._retriever.similarity
        scored = [HierarchicalHit(c.id, round(calibrate(c.score, similarity), DIGITS), c.payload) for c in whole]
        return [tool for tool in scored if tool.score >= ask.tool_threshold]

    def _floor(self, threshold: float) -> float:
        """The least cosine that can have that score, once it is rounded."""
        return find_cosine(threshold, self._retriever.similarity) - 0.1**DIGITS

    async def _within(
        self, prepared: PreparedQuery, ask: HierarchicalQuery, skill_ids: Sequence[str] | None
    ) -> tuple[list[Candidate], int]:
        return await self._retriever.nearest(
            prepared,
            TOOLS,
            where=_where(ask.item_type, None if skill_ids is None else tuple(skill_ids)),
            limit=ask.limit,
            floor=self._floor(ask.tool_threshold),
            count_to=DEPTH,
            fields=PAYLOAD,
        )

    async def _enriched(self, tools: Sequence[HierarchicalHit], report: SearchReport) -> list[HierarchicalHit]:
        known = await self._schemas.of([t.id for t in tools])
        gone = [i for i, schemas in known.items() if schemas is None]
        if gone:
            _done_without(report, SCHEMAS_STAGE, f"{gone[0]} is not in the catalogue any more")
        return [HierarchicalHit(t.id, t.score, t.payload, *(known[t.id] or ())) for t in tools]


async def _bounded(report: SearchReport, name: str, seconds: float, work: Coroutine[Any, Any, T], otherwise: T) -> T:
    """Times a stage, and lets it fail: by an error, by taking too long, by an answer that makes no sense."""
    with Stage(report, name):
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            _done_without(report, name, f"no answer within {seconds:g} s")
        except ToolscriptError as error:
            _done_without(report, name, error.message)
        except Exception as error:  # an adapter that returns garbage must not fail a search
            log.debug("stage_fault", exc_info=error)
            _done_without(report, name, f"{type(error).__name__}: {error}")
    return otherwise


def _done_without(report: SearchReport, stage: str, reason: str) -> None:
    report.degrade(STAGE_PARTS[stage])
    log.warning("stage_failed", extra={"stage": stage, "reason": reason})


def _require(report: SearchReport, what: str) -> None:
    if report.degraded:
        why = "the model does not answer" if SearchPart.EMBEDDER in report.degraded else "the index does not answer"
        raise Unavailable(
            f"{what} cannot be searched right now, because {why}: try again in a moment, the log tells more",
            details={"degraded": list(report.degraded)},
        )


def _least(threshold: float) -> float:
    """The least score that is told as that threshold, once it is rounded; nothing is below no threshold."""
    return threshold - 0.1**DIGITS if threshold > 0 else -math.inf


@lru_cache(maxsize=1024)
def _where(item_type: ItemType | None, skill_ids: tuple[str, ...] | None) -> Filter:
    must = [ACTIVE]
    if item_type is not None:
        must.append(Condition("type", Op.EQ, item_type.value))
    if skill_ids is not None:
        must.append(Condition("skill_ids", Op.IN, list(skill_ids)))
    return Filter(must=tuple(must))


def _check(ask: HierarchicalQuery, *, most_skills: int = 10) -> None:
    for name, value, least, most in (
        ("limit", ask.limit, 1, 50),
        ("skill_limit", ask.skill_limit, 1, most_skills),
        ("skill_threshold", ask.skill_threshold, 0, 1),
        ("tool_threshold", ask.tool_threshold, 0, 1),
    ):
        if not least <= value <= most:
            raise InvalidArguments(
                f"{name} {value} is out of range: give {least} to {most}",
                details={"field": name, "least": least, "most": most},
            )
