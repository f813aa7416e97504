"""The command `python -m benchmarks.relevance SET…`: how far the relevances of hits can be believed.

Every second query of the sets in FITTED was used to fit them and is left out. The first ten hits of each other query
count as relevant where the set says so; the queries of other sets, small talk and noise have no answer. A set of tools
is searched as documents; a set of books as knowledge.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Table
from toolscript.app.app import App, open_app
from toolscript.domain.access import Principal
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.domain.search import MAX_QUERY_CHARACTERS
from toolscript.evaluation.datasets import AnySet, BookSet, DocumentSet, JudgedQuery, Question, ToolSet, read_set
from toolscript.evaluation.run import ingest_book
from toolscript.retrieval.relevance import LEARNED
from toolscript.services.documents.search import DocumentQuery, SearchType
from toolscript.services.knowledge.search import KnowledgeQuery
from toolscript.settings import load_settings
from training.judge import NEVER_SERVED
from training.prepare import read_rows
from training.relevance import open_folder

Numbers = NDArray[np.float64]
FITTED = frozenset({"cranfield", "med"})
REQUESTS = Path("training/requests/unanswerable.jsonl")
DEPTH = 10
# Queries of a set at most, and those that are asked of the other sets.
MAX_QUERIES, MAX_FOREIGN = 120, 40
BUCKETS = 10
THRESHOLDS = (0.05, LEARNED.threshold, 0.3, 0.5, 0.7)


@dataclass(frozen=True, slots=True)
class JudgedSearch:
    """The relevances of the first hits of one query, and whether each is relevant."""

    relevances: tuple[float, ...]
    is_relevant: tuple[bool, ...]

    @property
    def best(self) -> float:
        return max(self.relevances, default=0.0)


@dataclass(frozen=True, slots=True)
class SetFigures:
    """The searches of a set's own queries, and of those that it has no answer to."""

    name: str
    own: Sequence[JudgedSearch]
    foreign: Sequence[JudgedSearch]

    @property
    def label(self) -> str:
        return f"{self.name}, other half" if self.name in FITTED else self.name

    @property
    def hits(self) -> tuple[Numbers, Numbers]:
        pairs = [(r, right) for each in self.own for r, right in zip(each.relevances, each.is_relevant, strict=True)]
        relevances, right = zip(*pairs, strict=True)
        return np.array(relevances), np.array(right, float)


AnyQuery = str | JudgedQuery | Question
Search = Callable[[AnyQuery], Awaitable[JudgedSearch]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relevance", description=__doc__)
    parser.add_argument("sets", type=Path, nargs="+", metavar="SET")
    parser.add_argument("--work", type=Path, help="data folder that keeps embedded texts; default: none is kept")
    parser.add_argument("--type", choices=list(SearchType), default=SearchType.HYBRID, help="of document searches")
    options = parser.parse_args()
    figures = asyncio.run(
        _measure([read_set(folder) for folder in options.sets], options.work, SearchType(options.type))
    )
    for table in build_tables(figures):
        print(table.markdown(), flush=True)


def build_tables(figures: Sequence[SetFigures]) -> list[Table]:
    """The calibration of each set, and the effect of thresholds."""
    columns = ("Set", "Queries", "Relevant of the first ten", "Mean relevance", "Calibration error")
    rows = [
        (
            f.label,
            str(len(f.own)),
            f"{right.mean():.2f}",
            f"{relevances.mean():.2f}",
            f"{compute_error(relevances, right):.2f}",
        )
        for f in figures
        for relevances, right in [f.hits]
    ]
    names = [f"{threshold:g}" for threshold in THRESHOLDS]
    effects = [(f.label, *(_format_effect(f, threshold) for threshold in THRESHOLDS)) for f in figures]
    shares = [
        (f.label, f"{len(f.own)} / {len(f.foreign)}", *(_format_shares(f, threshold) for threshold in THRESHOLDS))
        for f in figures
    ]
    return [
        Table("Relevance", columns, rows, "Calibration error: the mean distance over ten ranges of relevance."),
        Table("Precision / recall among the first ten", ("Set", *names), effects, ""),
        Table("Queries with a hit / foreign queries without one", ("Set", "Queries", *names), shares, ""),
    ]


def compute_error(relevances: Numbers, right: Numbers) -> float:
    """The expected calibration error: the distance between relevance and share of relevant hits, over ranges."""
    ranges = np.minimum((relevances * BUCKETS).astype(int), BUCKETS - 1)
    return float(sum(abs((relevances - right)[ranges == each].sum()) for each in range(BUCKETS)) / len(right))


def _format_effect(figures: SetFigures, threshold: float) -> str:
    relevances, right = figures.hits
    kept = relevances >= threshold
    precision = f"{right[kept].mean():.2f}" if kept.any() else "–"
    return f"{precision} / {right[kept].sum() / right.sum():.2f}"


def _format_shares(figures: SetFigures, threshold: float) -> str:
    own = np.mean([each.best >= threshold for each in figures.own])
    foreign = np.mean([each.best < threshold for each in figures.foreign])
    return f"{own:.2f} / {foreign:.2f}"


async def _measure(sets: Sequence[AnySet], work: Path | None, search_type: SearchType) -> list[SetFigures]:
    never = [row["query"] for row in read_rows([REQUESTS]) if row["kind"] in NEVER_SERVED][1::2]
    figures = []
    with open_folder(work) as folder:
        async with open_app(load_settings(data_dir=folder)) as app:
            for data in sets:
                search = await _open_set(app, data, search_type)
                others = [
                    q.text for other in sets if _corpus(other) != _corpus(data) for q in _select(other, MAX_FOREIGN)
                ]
                own = [await _ask(search, query) for query in _select(data, MAX_QUERIES)]
                foreign = [await _ask(search, text) for text in [*others, *never]]
                figures.append(SetFigures(data.name, own, foreign))
                print(f"{data.name}: {len(own)} queries, {len(foreign)} foreign ones", flush=True)
    return figures


def _corpus(data: AnySet) -> str:
    """Sets of books share their library: questions of one may have answers in the others."""
    return "books" if isinstance(data, BookSet) else data.name


def _select(data: AnySet, count: int) -> Sequence[JudgedQuery | Question]:
    queries = data.queries[1::2] if data.name in FITTED else data.queries
    return queries[:: max(1, len(queries) // count)][:count]


async def _ask(search: Search, query: AnyQuery) -> JudgedSearch:
    try:
        return await search(query)
    except Invalid:  # nothing but spaces
        return JudgedSearch((), ())


async def _open_set(app: App, data: AnySet, search_type: SearchType) -> Search:
    if isinstance(data, BookSet):
        for book in data.books:
            await ingest_book(app.texts.ingest_knowledge, book)
        return lambda query: _search_books(app, query)
    documents = data.documents if isinstance(data, DocumentSet) else _describe_tools(data)
    await app.texts.ingest_documents.put(data.name, [d for d in documents if d.text.strip()])
    return lambda query: _search_documents(app, data.name, query, search_type)


def _describe_tools(data: ToolSet) -> list[Document]:
    return [Document(i, item.description or item.name, item.name) for i, item in data.items.items()]


async def _search_documents(app: App, tenant: str, query: AnyQuery, search_type: SearchType) -> JudgedSearch:
    ask = DocumentQuery(_get_text(query), top_k=DEPTH, search_type=search_type, include_snippets=False)
    hits = (await app.texts.document_search.search(Principal(tenant), ask)).hits
    grades = query.grades if isinstance(query, JudgedQuery) else {}
    return JudgedSearch(
        tuple(hit.relevance or 0.0 for hit in hits), tuple(grades.get(hit.doc_id, 0) > 0 for hit in hits)
    )


async def _search_books(app: App, query: AnyQuery) -> JudgedSearch:
    hits = (await app.texts.knowledge_search.search(KnowledgeQuery(_get_text(query), limit=DEPTH))).hits
    places = query.places if isinstance(query, Question) else ()
    return JudgedSearch(
        tuple(hit.relevance or 0.0 for hit in hits),
        tuple(any(place.contains(hit.title, hit.position) for place in places) for hit in hits),
    )


def _get_text(query: AnyQuery) -> str:
    return (query if isinstance(query, str) else query.text)[:MAX_QUERY_CHARACTERS]


if __name__ == "__main__":
    main()
