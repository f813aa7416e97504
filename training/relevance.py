"""Fits the curves from what a document search knows of a hit to the probability that it is relevant.

Judges differ: three quarters of the first ten hits are relevant in one set, and a quarter in another, with the same
similarities. So every set has a base of its own while the slopes are fitted, and the curve gets the mean of the bases.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from toolscript.app.app import open_app
from toolscript.domain.access import Principal
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Invalid
from toolscript.domain.search import MAX_QUERY_CHARACTERS, SearchReport
from toolscript.evaluation.datasets import DocumentSet, read_set
from toolscript.retrieval.relevance import LearnedRelevance, RelevanceCurve, RelevanceSignals
from toolscript.retrieval.retriever import Retriever
from toolscript.services.documents.ranking import DocumentRanker
from toolscript.services.documents.request import DocumentQuery, DocumentRun, SearchType
from toolscript.settings import load_settings
from training.fit import UNSERVED, fit_logistic
from training.judge import NEVER_SERVED
from training.prepare import read_rows

# The hits of a query that are judged.
DEPTH = 10
SECONDS = 60.0
# The share of queries about something else that may have a hit above the threshold.
MAX_FOREIGN = 0.02
THRESHOLD_STEP = 0.05
WAYS = {"hybrid": SearchType.HYBRID, "meaning": SearchType.SEMANTIC, "words": SearchType.KEYWORD}
HEADER = "# The numbers of relevances (docs/decisions/0029). `python -m training relevance` writes them.\n"


@dataclass(frozen=True, slots=True)
class JudgedHit:
    """A hit among the documents of a set, which have no answer to a foreign query."""

    set: str
    query: str
    is_foreign: bool
    signals: RelevanceSignals
    is_relevant: bool


def judge_hits(folders: Sequence[Path], requests: Path, work: Path | None) -> dict[str, list[JudgedHit]]:
    """The judged hits of every second query of each set, for each way to search. Queries of the other sets, small talk
    and noise have no answer. `work` keeps embedded documents for the next time. Raises Invalid."""
    sets = [data for data in map(read_set, folders) if isinstance(data, DocumentSet)]
    if len(sets) < 2:  # noqa: PLR2004
        raise Invalid("give at least two sets of documents: the queries of each are foreign to the others")
    rows = [row for row in read_rows([requests / "unanswerable.jsonl"]) if row["kind"] in NEVER_SERVED]
    return asyncio.run(_judge(sets, [row["query"] for row in rows[::2]], work))


def fit_relevance(judged: Mapping[str, Sequence[JudgedHit]]) -> LearnedRelevance:
    """The curves that make the judgements the likeliest, and the threshold that few foreign queries reach."""
    curves = {name: _fit_curve(hits, name) for name, hits in judged.items()}
    foreign: dict[str, float] = {}
    for hit in judged["hybrid"]:
        if hit.is_foreign:
            key = f"{hit.set}: {hit.query}"
            foreign[key] = max(foreign.get(key, 0.0), curves["hybrid"].estimate(hit.signals))
    reached = float(np.quantile([*foreign.values()], 1 - MAX_FOREIGN))
    threshold = round(math.ceil(reached / THRESHOLD_STEP) * THRESHOLD_STEP, 2)
    return LearnedRelevance(threshold, **curves)


def write_relevance(path: Path, learned: LearnedRelevance) -> None:
    """Writes the file of learned numbers."""
    parts = [f"threshold = {learned.threshold}\n"]
    for name in WAYS:
        table = asdict(getattr(learned, name))
        parts.append(f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in table.items()))
    path.write_text("\n".join([HEADER, *parts]), encoding="utf-8")


def _fit_curve(hits: Sequence[JudgedHit], way: str) -> RelevanceCurve:
    """Signals that a way of searching does not have count for nothing, and so do those that would count against a
    hit."""
    names = sorted({hit.set for hit in hits})
    used = [
        name
        for name in RelevanceSignals._fields
        if (way, name) not in {("meaning", "coverage"), ("words", "similarity")}
    ]
    bases = np.array([[float(hit.set == name) for name in names] for hit in hits])
    signals = np.array([[getattr(hit.signals, name) for name in used] for hit in hits])
    counts = {key: sum((h.set, h.is_foreign) == key for h in hits) for key in {(h.set, h.is_foreign) for h in hits}}
    weights = [(UNSERVED if h.is_foreign else 1.0) / counts[h.set, h.is_foreign] for h in hits]
    wanted = np.array([float(hit.is_relevant) for hit in hits])
    found = fit_logistic(np.hstack([bases, signals]), wanted, np.array(weights))
    slopes = {name: round(max(0.0, float(value)), 2) for name, value in zip(used, found[len(names) :], strict=True)}
    return RelevanceCurve(
        round(float(found[: len(names)].mean()), 2), slopes.get("similarity", 0.0), slopes.get("coverage", 0.0)
    )


async def _judge(sets: Sequence[DocumentSet], never: Sequence[str], work: Path | None) -> dict[str, list[JudgedHit]]:
    found: dict[str, list[JudgedHit]] = {name: [] for name in WAYS}
    with open_folder(work) as folder:
        async with open_app(load_settings(data_dir=folder)) as app:
            ranker = DocumentRanker(Retriever(app.text_model.embedder, app.index), app.index, app.stores.documents)
            for data in sets:
                await app.texts.ingest_documents.put(data.name, [d for d in data.documents if d.text.strip()])
                others = [query.text for other in sets if other is not data for query in other.queries[::2]]
                queries = [(query.text, query.grades) for query in data.queries[::2]]
                queries += [(text, {}) for text in [*others, *never]]
                for text, grades in queries:
                    for name, search_type in WAYS.items():
                        found[name] += await _judge_one(ranker, data.name, text, grades, search_type)
                print(f"{data.name}: {len(data.documents)} documents, {len(queries)} queries", flush=True)
    return found


async def _judge_one(
    ranker: DocumentRanker, name: str, text: str, grades: Mapping[str, float], search_type: SearchType
) -> list[JudgedHit]:
    ask = DocumentQuery(text[:MAX_QUERY_CHARACTERS], search_type=search_type)
    run = DocumentRun(Principal(name), ask, SearchReport(), Deadline(SECONDS))
    try:
        ranking = await ranker.rank(run, 0, DEPTH)
    except Invalid:  # nothing but spaces
        return []
    if ranking.relevances is None:
        return []
    return [
        JudgedHit(name, text, not grades, ranking.relevances.signals(doc_id), grades.get(doc_id, 0) > 0)
        for doc_id, _ in ranking.places[:DEPTH]
    ]


@contextmanager
def open_folder(work: Path | None) -> Iterator[Path]:
    """The given folder, or one that is removed afterwards."""
    if work is not None:
        yield work
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
