"""Hybrid tool search: rank the whole catalogue, apply the threshold, cover every need, say why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from toolscript.domain.catalog import ItemType
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Invalid
from toolscript.domain.limits import current_limits
from toolscript.domain.profiles import Profile
from toolscript.domain.requests import RequestContext, current_request
from toolscript.domain.search import MAX_TASK_CHARACTERS, SearchReport
from toolscript.ports.observability import EventSink
from toolscript.retrieval.capabilities import get_word_form
from toolscript.retrieval.catalogue import CatalogueFacts, ItemFacts
from toolscript.retrieval.confidence import Evidence, explain
from toolscript.retrieval.fusion import put_needs_first
from toolscript.retrieval.query import QueryRules
from toolscript.retrieval.text.words import STOP_WORDS, replace_unencodable, stem, term, tokens, words
from toolscript.services.catalogue.snapshot import CatalogueSnapshot, CatalogueSnapshots
from toolscript.services.catalogue.visibility import View
from toolscript.services.servers.starting_servers import StartingServers
from toolscript.services.support.result_cache import ResultCache
from toolscript.services.support.search_events import record_tool_search
from toolscript.services.tools.ranking import Blend, FindEvidence, ToolRanking
from toolscript.services.tools.variants import Variants

RULES = QueryRules(has_content=words, blank_error=Invalid, length_error=Invalid, max_characters=MAX_TASK_CHARACTERS)
# A share of the catalogue. Only a first start, or a large new server, lacks more for long.
MAX_LACKING_VECTORS = 0.1
DEFAULT_LIMIT = 3
DEFAULT_THRESHOLD = 0.35


@dataclass(frozen=True, slots=True)
class ToolHit:
    """A tool that was found."""

    id: str
    server: str
    name: str
    type: str
    description: str
    confidence: float
    reason: str
    need: str | None = None
    """The part of a request with several needs that it serves."""
    quarantine: str = ""
    """Why it cannot be called; empty if it can."""
    evidence: Evidence = field(default_factory=Evidence)
    """What its confidence is made of."""
    variants: tuple[str, ...] = ()
    """The same tool of other servers, in the order of the configuration."""
    server_arguments: str = ""
    """In what its server differs from others with a tool of the same definition: a folder, an address."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The tool and its variants."""
        return (self.id, *self.variants)


@dataclass(frozen=True, slots=True)
class ToolResults:
    """The results of a tool search: confident tools, and the closest of the others."""

    query: str
    hits: list[ToolHit]
    threshold: float
    closest: list[ToolHit] = field(default_factory=list)
    report: SearchReport = field(default_factory=SearchReport)

    @property
    def ids(self) -> list[str]:
        """The tools of the answer and their variants, confident tools first."""
        return [item_id for hit in (*self.hits, *self.closest) for item_id in hit.ids]


class _ToolQuery(NamedTuple):
    text: str
    limit: int
    threshold: float
    item_type: ItemType | None
    closest: int
    blend: Blend
    alpha: float | None


# The versions of catalogue and configuration, the caller's profile, and the request: equal ones share their results.
_Key = tuple[int, int, Profile | None, _ToolQuery]


class ToolSearch:
    """Finds tools, prompts and resources by what they do and by their names, misspelt or not."""

    def __init__(
        self,
        ranking: ToolRanking,
        snapshots: CatalogueSnapshots,
        *,
        starting: StartingServers | None = None,
        variants: Variants | None = None,
        events: EventSink | None = None,
        count_lacking_vectors: Callable[[], int] = lambda: 0,
    ) -> None:
        """While servers are `starting`, reports say so. While many tools lack their vectors, searches go by words:
        tools with vectors would be ahead of better ones."""
        self._ranking = ranking
        self._snapshots = snapshots
        self._starting = starting
        self._variants = variants or Variants()
        self._events = events
        self._count_lacking_vectors = count_lacking_vectors
        self.cache: ResultCache[_Key, ToolResults] = ResultCache()

    async def search(
        self,
        text: str,
        *,
        limit: int = DEFAULT_LIMIT,
        threshold: float = DEFAULT_THRESHOLD,
        item_type: ItemType | None = None,
        closest: int = 0,
        blend: Blend = Blend.HYBRID,
        alpha: float | None = None,
        recorded: bool = True,
    ) -> ToolResults:
        """The tools at or above the threshold, most confident first; of a request with several needs the best tool of
        each need is in front. Where fewer than `limit` are, up to `closest` others follow that are not that sure, but
        nearer than noise is. Tools with equal definitions are one hit. Items of one `item_type` are looked for among
        the best of all types. `alpha` replaces the configured weight of meaning. Searches that no caller made are not
        `recorded`.

        Raises Invalid for a blank or overlong query, or a limit or threshold out of range.
        """
        text, report, context = replace_unencodable(text), SearchReport(), current_request()
        if self._starting and recorded:
            await self._starting.gateway.wait_for_first_listing()
        request = _ToolQuery(text, limit, threshold, item_type, closest, blend, alpha)
        with record_tool_search(self._events if recorded else None, "tools.search", text, report, context):
            return await self._search(request, report, context)

    async def _search(self, request: _ToolQuery, report: SearchReport, context: RequestContext) -> ToolResults:
        _check(request.limit, request.threshold)
        with report.stage("total"):
            snapshot, view = self._snapshots.current(), await self._ranking.find_view(context)
            key = snapshot.version, self._variants.get_version(), view.profile, request
            search = partial(self._search_new, request, snapshot, view)
            results = await self.cache.find_or_search(key, search, lambda: snapshot.is_complete, report)
            report.counts.update(results.report.counts)
        if self._starting:
            self._starting.add_to(report)
        return replace(results, report=report)

    async def _search_new(self, request: _ToolQuery, snapshot: CatalogueSnapshot, view: View) -> ToolResults:
        report, threshold = SearchReport(), request.threshold
        catalogue, steps = await snapshot.facts(), await snapshot.steps()
        deadline = Deadline(current_limits().tool_embedding, "tools")
        by_words = request.blend is Blend.HYBRID and (
            self._count_lacking_vectors() > MAX_LACKING_VECTORS * len(catalogue.items)
        )
        prepared = await self._ranking.prepare(
            request.text, catalogue, report, deadline, RULES, request.blend, dense=not by_words
        )
        ranked = await self._ranking.rank(
            request.text, prepared, catalogue, report, view, steps=steps, blend=request.blend, alpha=request.alpha
        )
        needs = ranked.legs.needs
        best = [(i, score) for i, score in ranked.best if i in catalogue.items]
        if request.item_type is not None:
            best = [(i, score) for i, score in best if catalogue.items[i].type == request.item_type]
        best = put_needs_first(self._variants.fold(best, catalogue), needs)
        confident = [pair for pair in best if pair[1] >= threshold][: request.limit]
        callable_tools = [pair for pair in best if not catalogue.items[pair[0]].quarantine]
        room = min(request.closest, request.limit - len(confident))
        near = self._ranking.choose_closest(callable_tools, threshold, room)
        query_terms = {w: term(stem(w)) for w in tokens(prepared.text) if w not in STOP_WORDS}
        hits = [
            _build_hit(i, score, catalogue.items[i], query_terms, ranked.find_evidence, needs.get(i))
            for i, score in (*confident, *near)
        ]
        if catalogue.variants:
            hits = [self._add_variants(hit, catalogue, view) for hit in hits]
        report.counts.update(candidates=len(ranked.best), returned=len(confident))
        return ToolResults(request.text, hits[: len(confident)], threshold, hits[len(confident) :], report)

    def _add_variants(self, hit: ToolHit, catalogue: CatalogueFacts, view: View) -> ToolHit:
        variants = self._variants.list_ids(hit.id, catalogue, view)
        return replace(hit, variants=variants, server_arguments=self._variants.describe_arguments(hit.id, catalogue))


def _build_hit(
    item_id: str,
    confidence: float,
    facts: ItemFacts,
    query_terms: Mapping[str, int],
    find_evidence: FindEvidence,
    need: str | None,
) -> ToolHit:
    shared = [word for word, number in query_terms.items() if number in facts.terms]
    named = tuple(word for word in shared if not word.isascii() or _has_word(facts, word))
    evidence = find_evidence(item_id, named[:3])
    if shared and not named:
        evidence = replace(evidence, keyword=0.0)
    return ToolHit(
        id=item_id,
        server=facts.server,
        name=facts.name,
        type=facts.type,
        description=facts.description,
        confidence=confidence,
        reason=explain(evidence),
        evidence=evidence,
        need=need,
        quarantine=facts.quarantine,
    )


def _has_word(facts: ItemFacts, word: str) -> bool:
    """Whether a form of the word is in the item's text. A stem is too short to name a word: that of "containers" is the
    one of a parameter `name_contains`."""
    form = get_word_form(word)
    return any(spelt[0] == word[0] and get_word_form(spelt) == form for spelt in facts.spelt)


def _check(limit: int, threshold: float) -> None:
    if limit < 1:
        raise Invalid(f"limit {limit} is out of range: give 1 or more", details={"field": "limit"})
    if not 0 <= threshold <= 1:
        raise Invalid(f"threshold {threshold} is out of range: give 0 to 1", details={"field": "threshold"})
