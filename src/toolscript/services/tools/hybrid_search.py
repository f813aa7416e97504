"""Hybrid tool search, one straight line: spelling, meaning and words, names, domains and capabilities, threshold.

`confidence = alpha * semantic + (1 - alpha) * keyword`, plus what the hit's reason names (docs/decisions/0007).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from toolscript.domain.catalog import StoredItem
from toolscript.domain.errors import Invalid
from toolscript.domain.search import SearchPart, SearchReport
from toolscript.ports.stores import ItemStore
from toolscript.retrieval.capabilities import Capabilities, load_capabilities
from toolscript.retrieval.catalogue import Catalogue, Facts, build_facts
from toolscript.retrieval.confidence import Confidences, QueryTopics
from toolscript.retrieval.deadline import Deadline
from toolscript.retrieval.fusion import RRF_K, rrf, sort_scores
from toolscript.retrieval.query import QueryRules
from toolscript.retrieval.reasons import Evidence, explain
from toolscript.retrieval.retriever import Legs, PreparedQuery, Retriever, Stage
from toolscript.retrieval.text.words import STOP_WORDS, replace_unencodable, stem, stems, words
from toolscript.services.catalogue.tool_points import TOOLS

EMBEDDING_SECONDS = 10.0
RULES = QueryRules(has_content=words, blank_error=Invalid, length_error=Invalid)
DEPTH = 50
# How many tools are looked at before a rest, and for how much longer than that took it lasts.
PAGE, REST = 16, 2
# How long ago somebody may have searched who is still taken to be searching.
LATELY_SECONDS = 1.0
BEST_RRF = 2 / (RRF_K + 1)
DEFAULT_LIMIT = 3
DEFAULT_THRESHOLD = 0.35

# What speaks for a candidate, given the words that it shares with the query.
Tell = Callable[[str, tuple[str, ...]], Evidence]


class Blend(StrEnum):
    """Which sides of a hybrid search count: both, weighed; both, by rank; or one alone."""

    HYBRID = "hybrid"
    RRF = "rrf"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"


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


@dataclass(frozen=True, slots=True)
class ToolResults:
    """The answer to a tool search."""

    query: str
    hits: list[ToolHit]
    threshold: float
    report: SearchReport = field(default_factory=SearchReport)


class ToolSearch:
    """Finds tools, prompts and resources by what they do, what they are called, or nearly so."""

    def __init__(
        self,
        retriever: Retriever,
        item_store: ItemStore,
        *,
        alpha: float = 0.7,
        capabilities: Capabilities | None = None,
        is_incomplete: Callable[[], bool] = lambda: False,
    ) -> None:
        """Without `capabilities`, those that come with the package. While `is_incomplete` says so, more tools are on
        their way, and answers tell that."""
        self._retriever = retriever
        self._item_store = item_store
        self._alpha = alpha
        self._capabilities = capabilities or load_capabilities()
        self._is_incomplete = is_incomplete
        self._picture: Catalogue | None = None
        self._drafted: dict[str, Facts] = {}
        self._changes = 0
        self._seen = -1
        self._taking = asyncio.Lock()

    def catalogue_changed(self) -> None:
        """To be called when the catalogue has changed."""
        self._changes += 1

    async def search(
        self,
        text: str,
        *,
        limit: int = DEFAULT_LIMIT,
        threshold: float = DEFAULT_THRESHOLD,
        blend: Blend = Blend.HYBRID,
    ) -> ToolResults:
        """The best tools, most confident first, those under the threshold left out.

        Raises Invalid for a blank or overlong query, or a limit or threshold out of range.
        """
        _check(limit, threshold)
        text = replace_unencodable(text)
        report = SearchReport()
        with Stage(report, "total"):
            catalogue = await self._catalogue()
            prepared = await self._retriever.prepare(
                text,
                Deadline(EMBEDDING_SECONDS, "tools"),
                report,
                rules=RULES,
                correct=catalogue.spelling.corrected if blend is Blend.HYBRID else None,
                count_terms=None if blend is Blend.SEMANTIC else catalogue.term_counts,
                dense=blend is not Blend.KEYWORD,
            )
            legs = await self._retriever.rank(prepared, TOOLS, report, depth=max(DEPTH, limit), fields=())
            ranked, evidence = self._rank(text, prepared, legs, catalogue, blend)
            best = [(i, score) for i, score in ranked if score >= threshold and i in catalogue.facts][:limit]
            asked = [w for w in words(prepared.text) if w not in STOP_WORDS]
            hits = [_hit(i, score, catalogue.facts[i], asked, evidence) for i, score in best]
        if self._is_incomplete():
            report.degrade(SearchPart.CATALOGUE)
        report.counts.update(candidates=len(ranked), returned=len(hits))
        return ToolResults(text, hits, threshold, report)

    def _rank(
        self, text: str, prepared: PreparedQuery, legs: Legs, catalogue: Catalogue, blend: Blend
    ) -> tuple[list[tuple[str, float]], Tell]:
        """Every candidate with its confidence, best first, and what tells the evidence for it."""
        if blend is Blend.RRF:
            ranks = sort_scores(rrf([legs.dense, legs.lexical]))
            return [(i, round(min(1.0, score / BEST_RRF), 4)) for i, score in ranks], lambda _, __: Evidence()
        alpha = {Blend.SEMANTIC: 1.0, Blend.KEYWORD: 0.0}.get(blend, self._alpha if legs.dense else 0.0)
        asked = self._capabilities.of_query(prepared.text) if blend is Blend.HYBRID else frozenset()
        about = QueryTopics(asked, catalogue.subjects, self._capabilities)
        found = Confidences(legs, prepared.terms.full_score, self._retriever.similarity, alpha, about)
        if blend is Blend.HYBRID:
            found.raise_named(catalogue.names.match(text, mistyped=catalogue.is_mistyped(text)))
            found.raise_capable()
        return found.sort(), found.evidence

    async def warm_up(self) -> None:
        """Takes the picture of the catalogue that the next search would have to wait for: a little at a time, and while
        others search with rests, because nothing else runs as it should meanwhile. A search that needs the picture does
        not wait for the rests."""
        digests = await self._digests()
        known = self._picture.facts if self._picture else {}
        unknown = [i for i, digest in digests.items() if i not in known or known[i].digest != digest]
        for start in range(0, len(unknown), PAGE):
            began = time.monotonic()
            read = await self._item_store.get_items(unknown[start : start + PAGE])
            self._drafted |= await asyncio.to_thread(self._facts, read, digests)
            if began - self._retriever.last_query_at < LATELY_SECONDS:
                await asyncio.sleep(REST * (time.monotonic() - began))
            if self._current() is not None:
                break
        await self._catalogue()
        self._drafted = {}

    async def _catalogue(self) -> Catalogue:
        """The picture of the catalogue; after a change only what changed is read again."""
        if (current := self._current()) is not None:
            return current
        async with self._taking:
            if (current := self._current()) is not None:
                return current
            changes = self._changes
            digests = await self._digests()
            known = {**(self._picture.facts if self._picture else {}), **self._drafted}
            same = {i: known[i] for i, digest in digests.items() if i in known and known[i].digest == digest}
            read = await self._item_store.get_items([i for i in digests if i not in same])
            self._picture = await asyncio.to_thread(self._taken, same, read, digests)
            self._seen = changes
            return self._picture

    def _current(self) -> Catalogue | None:
        return self._picture if self._seen == self._changes else None

    async def _digests(self) -> dict[str, str]:
        return {m.id: m.digest for m in await self._item_store.get_fingerprints() if m.is_active}

    def _taken(self, same: Mapping[str, Facts], read: Sequence[StoredItem], digests: Mapping[str, str]) -> Catalogue:
        return Catalogue({**same, **self._facts(read, digests)}, self._capabilities)

    def _facts(self, read: Sequence[StoredItem], digests: Mapping[str, str]) -> dict[str, Facts]:
        return {s.item.id: build_facts(s, digests[s.item.id], self._capabilities) for s in read}


def _hit(item_id: str, confidence: float, facts: Facts, asked: Sequence[str], evidence: Tell) -> ToolHit:
    own = _own_stems(f"{facts.name} {facts.server} {facts.description}")
    shared = tuple(dict.fromkeys(w for w in asked if stem(w) in own))[:3]
    return ToolHit(
        id=item_id,
        server=facts.server,
        name=facts.name,
        type=facts.type,
        description=facts.description,
        confidence=confidence,
        reason=explain(evidence(item_id, shared)),
    )


@lru_cache(maxsize=4096)
def _own_stems(text: str) -> frozenset[str]:
    return frozenset(stems(text))


def _check(limit: int, threshold: float) -> None:
    if limit < 1:
        raise Invalid(f"limit {limit} is out of range: give 1 or more", details={"field": "limit"})
    if not 0 <= threshold <= 1:
        raise Invalid(f"threshold {threshold} is out of range: give 0 to 1", details={"field": "threshold"})
