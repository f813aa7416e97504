"""Times searches of documents by words that every document has, with the embedded index and with PostgreSQL."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.hierarchical import run_postgres
from benchmarks.texts import make_documents
from benchmarks.timing import Table, format_duration, format_number, side_by_side
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.observability.event_sinks import Sinks
from toolscript.adapters.pgvector.index import PgVectorIndex
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.domain.access import Principal
from toolscript.domain.documents import Document
from toolscript.domain.filters import Condition, Filter, Op
from toolscript.ports.indexes import VectorIndex
from toolscript.retrieval.retriever import Retriever
from toolscript.services.access.plans import Plans
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.points import documents_collection
from toolscript.services.documents.search import DocumentQuery, DocumentSearch, SearchType

DOCUMENTS = 10_000
MAX_WORDS = 300
COMMON_WORDS = "everywhere file list create repository"
NOTE = (
    "`DocumentSearch.search` in one process, ten documents with snippets and the total, one client; documents of 20 to "
    "300 words. *Rare* is the same search for a word that one document in a thousand has; the two take turns."
)


async def run(quick: bool) -> list[Table]:
    """Searches by words that every document has, with the embedded index and with PostgreSQL."""
    count, times = (1_000, 20) if quick else (DOCUMENTS, 100)
    with TemporaryDirectory() as folder:
        place = Path(folder)
        url, index = f"sqlite:///{place / 'toolscript.db'}", QdrantEdgeIndex(place / "index")
        embedded = await _time_matches(url, index, count, times)
        with run_postgres(place / "postgres") as url:
            postgres = await _time_matches(url, PgVectorIndex(url), count, times)
    rows = [(what, *figures, *postgres[what]) for what, figures in embedded.items()]
    sides = ("embedded", "PostgreSQL + pgvector")
    columns = ("Search", *(f"{side}: {each}" for side in sides for each in ("p50", "p95", "÷ rare")))
    return [Table(f"Words that {count:,} documents have (bar 40 ms at p95)", columns, rows, NOTE)]


async def _time_matches(url: str, index: VectorIndex, count: int, times: int) -> dict[str, tuple[str, ...]]:
    """The p50 and p95 of each search, and its p50 by that of a search for a rare word."""
    database, embedder, who = Database(url), HashedEmbedder(384), Principal("one")
    store = SqlDocuments(database)
    await index.open(documents_collection(embedder.model, embedder.dimensions))
    await IngestDocuments(store, index, embedder).put(who.tenant, _make_matching_documents(count))
    service = DocumentSearch(Retriever(embedder, index), index, store, Plans({}), PageTokens(b"key"), Sinks([]))

    async def search(ask: DocumentQuery) -> None:
        await service.search(who, ask)

    async def search_rare_word(_: DocumentQuery) -> None:
        await service.search(who, DocumentQuery("seldom", search_type=SearchType.KEYWORD))

    one, several = (DocumentQuery(words, search_type=SearchType.KEYWORD) for words in ("everywhere", COMMON_WORDS))
    searches = {
        "a word of all": one,
        "a word of all and a rare one": replace(one, query="everywhere seldom"),
        "five common words": several,
        "five common words, the last page": replace(several, offset=count - 10),
        "five common words, filter keeps 50 %": replace(several, where=Filter((Condition("even", Op.EQ, True),))),
        "five common words, hybrid": replace(several, search_type=SearchType.HYBRID),
    }
    figures: dict[str, tuple[str, ...]] = {}
    for what, ask in searches.items():
        ours, rare = await side_by_side([ask] * times, search, search_rare_word)
        figures[what] = format_duration(ours.p50), format_duration(ours.p95), format_number(ours.p50 / rare.p50)
    await index.close()
    await database.close()
    return figures


def _make_matching_documents(count: int) -> list[Document]:
    chance, made = random.Random(7), []
    for number, text in enumerate(make_documents(count, MAX_WORDS, seed=8)):
        words = ["everywhere", *text.split()[: chance.randrange(20, MAX_WORDS)]]
        if number % 1_000 == 0:
            words.append("seldom")
        made.append(Document(f"d{number:06d}", " ".join(words), metadata={"even": number % 2 == 0}))
    return made
