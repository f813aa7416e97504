"""Turns ranked documents into hits: reads the documents of a page, selects metadata, builds snippets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolscript.domain.documents import Document, Passage
from toolscript.domain.search import SearchPart
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.text.forms import list_query_forms
from toolscript.retrieval.text.item_text import build_passage_text
from toolscript.retrieval.text.languages import detect_language
from toolscript.retrieval.text.snippets import build_snippet
from toolscript.retrieval.text.words import ENGLISH, replace_unencodable, tokens
from toolscript.services.documents.points import DOCUMENTS, point_id
from toolscript.services.documents.ranking import Ranked
from toolscript.services.documents.request import MAX_SNIPPET_CHARACTERS, DocumentQuery, DocumentRun

# Snippets of more text than this are built in a thread, so that other requests do not wait.
MUCH_TEXT = 20_000
# Characters of a text that are read for its snippet. Independent of the page, so that pages equal one large request.
MAX_READ_CHARACTERS = 20_000
# Characters of a text that its language is recognised by.
LANGUAGE_CHARACTERS = 2_000
PLACE = ("digest", "start", "end")


@dataclass(frozen=True, slots=True)
class DocumentHit:
    """A document that was found. `relevance` is the estimated probability that it is relevant; None where it is
    unknown."""

    doc_id: str
    score: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    snippet: str | None = None
    relevance: float | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A stored document, with its best passage if it has not changed since it was indexed."""

    ranked: Ranked
    document: Document
    passage: Passage | None = None


@dataclass(frozen=True, slots=True)
class DocumentReader:
    """Reads ranked documents of one tenant."""

    index: VectorIndex
    store: DocumentStore

    async def read(self, run: DocumentRun, ranked: Sequence[Ranked], *, passages: bool) -> list[Read]:
        """The documents in the same order, without deleted documents; with their best passages if `passages`."""
        if not ranked:
            return []
        tenant, deadline = run.tenant, run.deadline
        reading = deadline.call(SearchPart.STORE, self.store.get_documents(tenant, [r.doc_id for r in ranked]))
        points = {r: point_id(tenant, r.doc_id, r.part) for r in ranked if r.part is not None} if passages else {}
        if points:
            finding = self.index.payloads(DOCUMENTS, list(points.values()), PLACE)
            digesting = self.store.get_digests(tenant, [r.doc_id for r in points])
            documents, places, digests = await asyncio.gather(
                reading, deadline.call(SearchPart.INDEX, finding), deadline.call(SearchPart.STORE, digesting)
            )
        else:
            documents, places, digests = await reading, {}, {}
        by_id = {d.id: d for d in documents}
        return [
            Read(r, by_id[r.doc_id], _passage(r, digests.get(r.doc_id), places.get(points.get(r, ""))))
            for r in ranked
            if r.doc_id in by_id
        ]


async def build_hits(run: DocumentRun, read: Sequence[Read]) -> list[DocumentHit]:
    """Builds the hits. After the deadline, snippets are the beginnings of texts."""
    ask = run.ask
    query = replace_unencodable(ask.text)

    def build_hit(reading: Read) -> DocumentHit:
        snippet = None
        if ask.include_snippets:
            words = "" if run.deadline.is_over else query
            snippet = _snippet(reading, words, ask.snippet_max_chars, highlight=ask.highlight)
        ranked = reading.ranked
        return DocumentHit(ranked.doc_id, ranked.score, _metadata(reading.document, run), snippet, ranked.relevance)

    def build() -> list[DocumentHit]:
        return [build_hit(reading) for reading in read]

    is_much = ask.include_snippets and sum(len(reading.document.text) for reading in read) > MUCH_TEXT
    return await asyncio.to_thread(build) if is_much else build()


def question_and_passages(ask: DocumentQuery, read: Sequence[Read]) -> tuple[str, list[str]]:
    """Returns the query and one passage per document for a reranker: title and best passage, or the text around the
    matched words."""
    query = replace_unencodable(ask.text)
    return query, [_best_text(reading, query) for reading in read]


def _best_text(read: Read, query: str) -> str:
    if read.passage is not None:
        return build_passage_text(read.document, read.passage)
    around = _snippet(read, query, MAX_SNIPPET_CHARACTERS, highlight=False)
    start = read.document.text.find(around)
    return build_passage_text(read.document, Passage(0, start, start + len(around)))


def _snippet(read: Read, query: str, max_length: int, *, highlight: bool) -> str:
    near = (read.passage.start, read.passage.end) if read.passage else None
    text = read.document.text
    language = (detect_language(tokens(text[:LANGUAGE_CHARACTERS])) if query else None) or ENGLISH
    return build_snippet(
        text,
        list_query_forms(query, language),
        max_length,
        near=near,
        highlight=highlight,
        max_read=MAX_READ_CHARACTERS,
        language=language,
    )


def _metadata(document: Document, run: DocumentRun) -> dict[str, Any]:
    """The metadata that was requested and that the plan allows; none without a plan."""
    requested, allowed = run.ask.metadata_fields, run.plan.fields if run.plan else ()
    title = {"title": document.title} if document.title else {}
    return {
        name: value
        for name, value in {**title, **document.metadata}.items()
        if (requested is None or name in requested) and (allowed is None or name in allowed)
    }


def _passage(ranked: Ranked, digest: str | None, place: Mapping[str, Any] | None) -> Passage | None:
    """Returns the passage; None if the document has changed since it was indexed."""
    if place is None or ranked.part is None or place.get("digest") != digest:
        return None
    return Passage(ranked.part, int(place["start"]), int(place["end"]))
