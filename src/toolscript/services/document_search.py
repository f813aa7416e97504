"""Search in one tenant's documents: by meaning, by word, or both, fused by rank or by standard score."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from toolscript.domain.errors import Invalid
from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.domain.search import Report
from toolscript.ports import DocumentStore
from toolscript.retrieval.fusion import FUSIONS, ordered
from toolscript.retrieval.retriever import Retriever, stage
from toolscript.retrieval.words import sayable, words
from toolscript.services.ingest_documents import DOCUMENTS, of_tenant

DEPTH = 1000
MOST_RESULTS = 200


class SearchType(StrEnum):
    """How documents are ranked."""

    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class DocumentHit:
    """A document that was found."""

    doc_id: str
    score: float


@dataclass(frozen=True, slots=True)
class DocumentResults:
    """The answer to a document search."""

    query: str
    hits: list[DocumentHit]
    report: Report = field(default_factory=Report)


class DocumentSearch:
    """Finds a tenant's documents. The tenant is never optional."""

    def __init__(self, retriever: Retriever, store: DocumentStore) -> None:
        self._retriever = retriever
        self._store = store

    async def search(
        self,
        tenant: str,
        text: str,
        *,
        top_k: int = 10,
        search_type: SearchType = SearchType.HYBRID,
        fusion: str = "rrf",
        where: Filter = EVERYTHING,
    ) -> DocumentResults:
        """The best documents of the tenant, best first.

        Raises Invalid for a blank query, a `top_k` outside 1 to 200 or an unknown fusion.
        """
        _check(text, top_k, fusion)
        text = sayable(text)
        report = Report()
        with stage(report, "total"):
            prepared = await self._retriever.prepare(
                text,
                report,
                count_terms=None
                if search_type is SearchType.SEMANTIC
                else lambda terms: self._store.term_counts(tenant, terms),
                dense=search_type is not SearchType.KEYWORD,
            )
            legs = await self._retriever.rank(
                prepared, DOCUMENTS, report, where=where.requiring(of_tenant(tenant)), depth=DEPTH
            )
            if search_type is SearchType.HYBRID:
                ids = {c.id: c.payload["doc_id"] for c in [*legs.dense, *legs.lexical]}
                ranked = [(ids[i], score) for i, score in ordered(FUSIONS[fusion]([legs.dense, legs.lexical]))]
            else:
                ranked = [(c.payload["doc_id"], c.score) for c in [*legs.dense, *legs.lexical]]
        return DocumentResults(text, [DocumentHit(i, s) for i, s in ranked[:top_k]], report)


def _check(text: str, top_k: int, fusion: str) -> None:
    if not words(text):
        raise Invalid("the query is blank", details={"field": "query"})
    if not 1 <= top_k <= MOST_RESULTS:
        raise Invalid(
            f"top_k {top_k} is out of range: give 1 to {MOST_RESULTS}",
            details={"field": "top_k", "most": MOST_RESULTS},
        )
    if fusion not in FUSIONS:
        raise Invalid(
            f"fusion {fusion!r} is not known: give {' or '.join(FUSIONS)}",
            details={"field": "fusion", "allowed": list(FUSIONS)},
        )
