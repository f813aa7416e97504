"""Measures what another description would do to searches, without changing catalogue or index."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from toolscript.domain.catalog import Item, StoredItem
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.search import Candidate, SearchReport, Terms, Vector, sort_candidates
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.retrieval.bm25 import document_terms
from toolscript.retrieval.capabilities import Capabilities
from toolscript.retrieval.catalogue import CatalogueFacts, build_facts
from toolscript.retrieval.fusion import put_needs_first
from toolscript.retrieval.retriever import Legs, PreparedQuery, Retriever, compare
from toolscript.retrieval.text.item_text import (
    ITEM_AVERAGE_LENGTH,
    build_item_text,
    count_item_terms,
    item_frequencies,
)
from toolscript.services.catalogue.visibility import View
from toolscript.services.tools.hybrid_search import RULES
from toolscript.services.tools.ranking import ToolRanking
from toolscript.services.tools.variants import Variants

PLACES = 5

ServedRequest = tuple[str, str]
"""A request, and the tool that served it."""


class ChangedRetriever(Retriever):
    """Ranks as the index does, but one tool by another text."""

    def __init__(
        self, embedder: Embedder | None, index: VectorIndex, tool_id: str, vector: Vector | None, terms: Terms
    ):
        super().__init__(embedder, index)
        self._tool_id = tool_id
        self._vectors = {} if vector is None else {tool_id: vector}
        self._weights = dict(zip(terms.ids, terms.weights, strict=True))

    async def rank(
        self, prepared: PreparedQuery, collection: str, report: SearchReport, *, depth: int, **options: Any
    ) -> Legs:
        legs = await super().rank(prepared, collection, report, depth=depth, **options)
        query = zip(prepared.terms.terms.ids, prepared.terms.terms.weights, strict=True)
        words = sum(weight * self._weights.get(number, 0.0) for number, weight in query)
        dense = compare(prepared, self._vectors).get(self._tool_id)
        return Legs(self._replace(legs.dense, dense, depth), self._replace(legs.lexical, words, depth), legs.needs)

    def _replace(self, leg: Sequence[Candidate], score: float | None, depth: int) -> list[Candidate]:
        others = [candidate for candidate in leg if candidate.id != self._tool_id]
        return sort_candidates([*others, Candidate(self._tool_id, score)] if score else others)[:depth]


@dataclass(frozen=True, slots=True)
class TextTrial:
    """Searches in the catalogue as it is, and with another text of one tool; without what was learnt from use, because
    that was learnt from the same requests."""

    embedder: Embedder | None
    index: VectorIndex
    capabilities: Capabilities
    alpha: float
    variants: Variants

    async def compare_texts(
        self, requests: Sequence[ServedRequest], item: Item, catalogue: CatalogueFacts
    ) -> tuple[float, float]:
        """R@5 of these requests now, and with the item in place of its present form. Raises Unavailable when the model
        does not answer in time, and what the index raises."""
        changed = build_facts(StoredItem(0, item, count_item_terms(item)), item.digest, self.capabilities)
        items = {**catalogue.items, item.id: changed}
        other_catalogue = await asyncio.to_thread(CatalogueFacts, items, self.capabilities)
        vector = (await self.embedder.embed_documents([build_item_text(item)]))[0] if self.embedder else None
        terms = document_terms(item_frequencies(item), ITEM_AVERAGE_LENGTH)
        now = Retriever(self.embedder, self.index)
        then = ChangedRetriever(self.embedder, self.index, item.id, vector, terms)
        return await self._measure(now, catalogue, requests), await self._measure(then, other_catalogue, requests)

    async def _measure(
        self, retriever: Retriever, catalogue: CatalogueFacts, requests: Sequence[ServedRequest]
    ) -> float:
        ranking = ToolRanking(retriever, self.capabilities, alpha=self.alpha)
        rankings: dict[str, list[str]] = {}
        for text in dict.fromkeys(text for text, _ in requests):
            rankings[text] = await self._search(text, ranking, catalogue)
        return sum(self._is_found(tool_id, rankings[text], catalogue) for text, tool_id in requests) / len(requests)

    async def _search(self, text: str, ranking: ToolRanking, catalogue: CatalogueFacts) -> list[str]:
        """The first tools, one of each group of copies."""
        report, deadline = SearchReport(), Deadline(current_limits().tool_embedding, "tools")
        prepared = await ranking.prepare(text, catalogue, report, deadline, RULES)
        if prepared.vector is None and self.embedder:
            raise Unavailable("the model did not answer in time")
        ranked = await ranking.rank(text, prepared, catalogue, report, View())
        best = [pair for pair in ranked.best if pair[0] in catalogue.items]
        folded = put_needs_first(self.variants.fold(best, catalogue), ranked.legs.needs)
        return [tool_id for tool_id, _ in folded[:PLACES]]

    def _is_found(self, tool_id: str, first: Collection[str], catalogue: CatalogueFacts) -> bool:
        copies = self.variants.list_ids(tool_id, catalogue, View())
        return not {tool_id, *copies}.isdisjoint(first)
