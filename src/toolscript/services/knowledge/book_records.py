"""Cuts books into chunks, and keeps extractions when a book is cut again.

A chunk's id is made of its text and its section, not of its page: an inserted page changes no id after it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from toolscript.domain.knowledge import Block, Book, Chunk, Extraction, Source, derive_id, strip_language
from toolscript.ports.models import Embedder
from toolscript.retrieval.text.book_chunks import RECIPE, cut
from toolscript.retrieval.text.words import replace_unencodable
from toolscript.services.knowledge.extraction import is_read
from toolscript.services.knowledge.points import max_chunk_tokens

# At most a fifth of a chunk repeats the end of the one before it, in whole sentences.
OVERLAP_SHARE = 5
MAX_HEADING_CHARACTERS = 1_000
MAX_NAME_CHARACTERS = 200
MAX_AUTHORS = 50
# First pages whose title is the book's title, unlike "Contents" or "Read me".
TITLED_PAGES = ("index", "default")
# The chunk id of an extraction that belongs to a source as a whole.
OF_NO_CHUNK = ""

_NUMBERED = re.compile(r"(?:(?:Chapter|Appendix)\s+)?(\d+|[A-Z](?=[.:]))((?:\.\d+)*)[.:]?\s")


def bind_pages(name: str, pages: Sequence[tuple[str, Book]]) -> Book:
    """The pages of a folder as one book. Blocks without a chapter get the page's title as their chapter. A chapter that
    is numbered as a section of the previous one (6.2 after 6) becomes a section of it."""
    blocks = []
    chapter = ""
    for stem, page in pages:
        for block in page.blocks:
            own, section = block.position.chapter or page.title or stem, block.position.section
            above, below = _NUMBERED.match(chapter), _NUMBERED.match(own)
            if above and below and not above[2] and below[2] and above[1] == below[1]:
                own, section = chapter, section or own
            else:
                chapter = own
            blocks.append(replace(block, position=replace(block.position, chapter=own, section=section)))
    title = next((page.title for stem, page in pages if strip_language(stem) in TITLED_PAGES and page.title), name)
    authors = dict.fromkeys(author for _, page in pages for author in page.authors)
    return Book(title, tuple(authors), tuple(blocks), max((page.date for _, page in pages), default=""))


def digest(source: Source, value: Mapping[str, Any], blocks: Sequence[Block], embedder: Embedder) -> str:
    """The digest of everything that a source, its chunks and their vectors are made of."""
    made_of = hashlib.sha256()
    recipe = [RECIPE, max_chunk_tokens(embedder), embedder.model]
    recipe += [source.title, source.authors, source.type, source.path, value]
    for part in (recipe, *map(_list_fields, blocks)):
        made_of.update(json.dumps(part).encode() + b"\n")
    return made_of.hexdigest()[:32]


def _list_fields(block: Block) -> list[object]:
    place = block.position
    line = [place.line] if place.line is not None else []
    return [block.kind, place.chapter, place.section, place.page, block.text, *line]


def cut_chunks(source_id: str, blocks: Sequence[Block], embedder: Embedder) -> list[Chunk]:
    """The chunks of a book, in reading order."""
    size = max_chunk_tokens(embedder)
    measure = cache(embedder.count_tokens)
    chunks = []
    seen: Counter[tuple[str, ...]] = Counter()
    for piece in cut(
        [_clean_block(block) for block in blocks], size=size, overlap=size // OVERLAP_SHARE, measure=measure
    ):
        own = (piece.text, piece.position.chapter, piece.position.section)
        chunks.append(
            Chunk(derive_id(source_id, *own, seen[own]), source_id, piece.text, piece.position, measure(piece.text))
        )
        seen[own] += 1
    return chunks


def carry_over_extractions(
    extractions: Sequence[Extraction], before: Sequence[Chunk], now: Sequence[Chunk], read_chunks: Collection[str]
) -> tuple[list[Extraction], int]:
    """The extractions of a book that was cut again, and how many of them lost their chunk.

    Extractions of a language model stay with their chunk or are dropped with it: the model reads the new chunks.
    Imported extractions always stay: with their chunk, else with the nearest chunk of the same text, else with the
    source.
    """
    there = {chunk.id for chunk in now}
    places = {chunk.id: (chunk.content, number) for number, chunk in enumerate(before)}
    equals: dict[str, list[int]] = {}
    for number, chunk in enumerate(now):
        equals.setdefault(chunk.content, []).append(number)
    kept, lost = [], 0
    for each in extractions:
        if each.chunk_id in there or each.chunk_id == OF_NO_CHUNK:
            if not is_read(each) or each.chunk_id in read_chunks:
                kept.append(each)
        elif not is_read(each):
            content, place = places.get(each.chunk_id, ("", 0))
            found = min(equals.get(content, ()), key=lambda number, place=place: abs(number - place), default=None)
            lost += found is None
            kept.append(replace(each, chunk_id=OF_NO_CHUNK if found is None else now[found].id))
    return kept, lost


def clean_line(value: object, maximum: int) -> str:
    """The text on one line, in characters that every store accepts; empty when it is not a string."""
    return " ".join(_clean(value).split())[:maximum].rstrip() if isinstance(value, str) else ""


def clean_names(value: object) -> list[str]:
    """The names of authors, each on one line; none when it is not a list."""
    several = value if isinstance(value, list | tuple) else ()
    return [name for each in several if (name := clean_line(each, MAX_NAME_CHARACTERS))][:MAX_AUTHORS]


def _clean(text: str) -> str:
    """The text without characters that some stores refuse."""
    return replace_unencodable(text).replace("\0", "")


def _clean_block(block: Block) -> Block:
    place = block.position
    chapter, section = (_clean(each)[:MAX_HEADING_CHARACTERS] for each in (place.chapter, place.section))
    return replace(block, text=_clean(block.text), position=replace(place, chapter=chapter, section=section))
