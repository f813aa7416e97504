"""Books, papers and other long texts: what a reader makes of a file, and what is kept of it to be found and cited."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1
UNKNOWN_SOURCE = "Unknown Source"
# What extractions are usually; any other word will do as well.
EXTRACTION_TYPES = ("decision", "pattern", "warning", "methodology", "definition", "example")
# What the names of files end in that are read as books.
BOOK_ENDINGS = (".md", ".markdown", ".html", ".htm", ".xhtml", ".pdf", ".docx", ".epub", ".txt", ".rst", ".text")
# What the first page of a book in a folder is called; some say their language as well: index.pt-br.html.
FIRST_PAGES = ("index", "default", "toc", "summary", "readme")
_LANGUAGE = re.compile(r"\.[a-z]{2,3}(?:[-_@][a-z0-9]+)*$")


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a source something stands: what a person needs to look it up."""

    chapter: str = ""
    section: str = ""
    page: int | None = None


class BlockKind(StrEnum):
    """What a block is, as far as cutting it is concerned."""

    PROSE = "prose"
    CODE = "code"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a list, a block of code or a table, as it stands in a book."""

    text: str
    kind: BlockKind = BlockKind.PROSE
    position: Position = Position()


@dataclass(frozen=True, slots=True)
class Book:
    """What a reader made of a file: blocks in reading order, and what the file says of itself."""

    title: str
    authors: tuple[str, ...]
    blocks: tuple[Block, ...]


class SourceStatus(StrEnum):
    """How far a source has come: stored, or also indexed."""

    INDEXING = "indexing"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Source:
    """A book or paper that chunks and extractions come from. `metadata` holds our own notes, too (see
    `services/knowledge/ingest.py`): `digest` of what was read, and with which model extractions were made."""

    id: str
    type: str
    title: str
    authors: tuple[str, ...]
    path: str
    ingested_at: str
    status: str = SourceStatus.READY
    metadata: Mapping[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def with_status(self, status: SourceStatus) -> Source:
        """The same source, that far."""
        return replace(self, status=status)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a source that fits the model's window."""

    id: str
    source_id: str
    content: str
    position: Position
    token_count: int
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Extraction:
    """Something worth knowing that was read out of a chunk: a decision, a pattern, a warning. `content` is what the
    reader made of it, in parts."""

    id: str
    source_id: str
    chunk_id: str
    type: str
    content: Mapping[str, Any]
    topics: tuple[str, ...]
    extracted_at: str
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class KnowledgeRecords:
    """What one batched read brought, by id; what is not there is missing."""

    sources: Mapping[str, Source]
    chunks: Mapping[str, Chunk]
    extractions: Mapping[str, Extraction]


def derive_id(*parts: object) -> str:
    """An id of 24 hexadecimal digits, which is also what MongoDB calls an ObjectId: the same for the same parts."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def strip_language(stem: str) -> str:
    """What a page of a folder is called, without its language: one of FIRST_PAGES, if it is the first."""
    return _LANGUAGE.sub("", stem.lower())


def format_content(content: Mapping[str, Any]) -> str:
    """What an extraction says, as text: its parts one a line, with their names."""
    return "\n".join(_named(content))


def _named(parts: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name}: {said}" for name, value in parts.items() if (said := _said(value)))


def _said(value: Any) -> str:
    """As JSON would say it, without its marks; nothing of what is null or empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "; ".join(_named(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "; ".join(filter(None, map(_said, value)))
    return str(value)
