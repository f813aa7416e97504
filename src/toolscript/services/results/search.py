"""Searches in one result: all its chunks by words, the best of these by meaning too."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from toolscript.domain.errors import ToolscriptError
from toolscript.domain.limits import current_limits
from toolscript.domain.search import TermCounts
from toolscript.ports.models import Embedder
from toolscript.retrieval.bm25 import document_terms, query_terms
from toolscript.retrieval.fusion import rrf, sort_scores
from toolscript.retrieval.text.json_chunks import TextChunk, chunk_json, chunk_text
from toolscript.retrieval.text.json_paths import format_path
from toolscript.retrieval.text.words import remove_accents, stem, stems, term, tokens
from toolscript.services.results.document import ResultDocument

CHUNK_BYTES = 1000
# 300 characters take a model some 20 ms. 500 found 29 of 61 tools in a list of 3000 among the first ten, 300 from the
# beginning 28, 300 around the first word of the query 27.
MAX_EMBEDDED, EMBEDDED_CHARACTERS = 24, 300
# Of all chunks with words of the query, so many are ranked exactly: 2000 take some 0.2 s.
MAX_COUNTED = 2000
# The words of a chunk that the query does not have count only towards its length.
_OTHER_WORDS = -1

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RankedChunk:
    """A chunk, by its number, and its score."""

    id: str
    score: float


class ChunkFusion:
    """Ranks the chunks that words have found by meaning, too."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder

    async def fuse(self, query: str, chunks: Sequence[TextChunk], by_words: Sequence[RankedChunk]) -> list[TextChunk]:
        """The chunks that fit the query, best first. Where no chunk has a word of the query, the chunks that are near
        in meaning, if the result is short."""
        candidates = [int(candidate.id) for candidate in by_words[:MAX_EMBEDDED]]
        if len(chunks) <= MAX_EMBEDDED:
            candidates = list(range(len(chunks)))
        by_meaning = await self._rank_by_meaning(query, chunks, candidates)
        fused = rrf([by_words, by_meaning])
        return [chunks[int(i)] for i, _ in sort_scores(fused)]

    async def _rank_by_meaning(
        self, query: str, chunks: Sequence[TextChunk], candidates: Sequence[int]
    ) -> list[RankedChunk]:
        if self._embedder is None or not candidates:
            return []
        texts = [chunks[at].text[:EMBEDDED_CHARACTERS] for at in candidates]
        try:
            async with asyncio.timeout(current_limits().result_embedding):
                vector = await self._embedder.embed_query(query)
                vectors = await self._embedder.embed_documents(texts)
        except (ToolscriptError, TimeoutError) as error:
            log.info("result_searched_by_words_alone", extra={"reason": str(error)})
            return []
        scores = {_name(at): float(vector @ row) for at, row in zip(candidates, vectors, strict=True)}
        return [RankedChunk(i, score) for i, score in sort_scores(scores)]


def rank_by_words(document: ResultDocument, query: str) -> tuple[list[TextChunk], list[RankedChunk]]:
    """The chunks of a document, and the chunks with a word of the query, best first."""
    whole = chunk_text(document.text, CHUNK_BYTES) if document.root is None else chunk_json(document.root, CHUNK_BYTES)
    chunks = list(whole)
    query_stems = Counter(stems(query))
    counted = {at: _count_words(chunks[at], query_stems) for at in _find_candidates(chunks, list(query_stems))}
    with_term = Counter(number for frequencies in counted.values() for number in frequencies)
    idf = query_terms(
        Counter({term(word): times for word, times in query_stems.items()}), TermCounts(len(chunks), with_term)
    ).terms
    weights = dict(zip(idf.ids, idf.weights, strict=True))
    average = max(1.0, sum(counts.total() for counts in counted.values()) / max(1, len(counted)))
    scores: dict[str, float] = {}
    for at, frequencies in counted.items():
        if frequencies.keys() & weights.keys():
            terms = document_terms(frequencies, average)
            pairs = zip(terms.ids, terms.weights, strict=True)
            scores[_name(at)] = sum(weight * weights.get(number, 0.0) for number, weight in pairs)
    return chunks, [RankedChunk(i, score) for i, score in sort_scores(scores)]


def _find_candidates(chunks: Sequence[TextChunk], query_stems: Sequence[str]) -> list[int]:
    """The chunks that may have one of the stems: at most MAX_COUNTED, chunks with more and rarer stems first. Looks for
    the beginnings of stems, because that takes a tenth of the time of counting words."""
    # A stem may end with another letter than its words, as `citi` does.
    beginnings = [stemmed[: max(2, len(stemmed) - 1)] for stemmed in query_stems]
    present: list[tuple[int, list[int]]] = []
    for at, chunk in enumerate(chunks):
        text = _fold(f"{format_path(chunk.path)} {chunk.text}")
        if numbers := [number for number, beginning in enumerate(beginnings) if beginning in text]:
            present.append((at, numbers))
    if len(present) > MAX_COUNTED:
        times = Counter(number for _, numbers in present for number in numbers)
        weights = {number: math.log(1 + len(chunks) / count) for number, count in times.items()}
        present.sort(key=lambda pair: -sum(weights[number] for number in pair[1]))
    return sorted(at for at, _ in present[:MAX_COUNTED])


def _fold(text: str) -> str:
    """The text in small letters without accents, as `words` folds it."""
    if text.isascii():
        return text.lower()
    return remove_accents(text).casefold()


def _name(at: int) -> str:
    """The id of a chunk: chunks of equal scores are in the order of the text."""
    return f"{at:08}"


def _count_words(chunk: TextChunk, query_stems: Collection[str]) -> Counter[int]:
    """How often a chunk has each of the wanted stems; all its other words count as one."""
    chunk_tokens = tokens(f"{format_path(chunk.path)} {chunk.text}")
    matching = {word: term(stemmed) for word in set(chunk_tokens) if (stemmed := stem(word)) in query_stems}
    frequencies = Counter(matching[word] for word in chunk_tokens if word in matching)
    frequencies[_OTHER_WORDS] = len(chunk_tokens) - frequencies.total()
    return frequencies
