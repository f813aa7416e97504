"""Books, papers and other long texts: their parsed form, and the records of them that are searched and cited."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1
# Keys of a source's metadata: its date; the digest of its content, the details that a person gave, the model that
# extracts from it, and the chunks that this model has not read yet.
DATE, DIGEST, DETAILS, EXTRACTED_WITH, UNASKED = "date", "digest", "said", "extracted_with", "unasked"
INTERNAL_METADATA = frozenset({DIGEST, DETAILS, EXTRACTED_WITH, UNASKED})
UNKNOWN_SOURCE = "Unknown Source"
# The usual types of extractions; any other word is allowed.
EXTRACTION_TYPES = ("decision", "pattern", "warning", "methodology", "definition", "example")
# File name suffixes of pages, which a book of many pages consists of.
BOOK_ENDINGS = (".md", ".markdown", ".html", ".htm", ".xhtml", ".pdf", ".docx", ".epub", ".txt", ".rst", ".text")
# Names of the first page of a book in a folder, without a language suffix as in index.pt-br.html.
FIRST_PAGES = ("index", "default", "toc", "summary", "readme")
_DATE = re.compile("([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_LANGUAGE = re.compile(r"\.[a-z]{2,3}(?:[-_@][a-z0-9]+)*$")


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a source, for citations. `line` counts the lines of a text file, or the rows of a sheet, from 1."""

    chapter: str = ""
    section: str = ""
    page: int | None = None
    line: int | None = None


class BlockKind(StrEnum):
    """The kinds of blocks that chunking distinguishes."""

    PROSE = "prose"
    CODE = "code"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a list, a code block or a table of a book."""

    text: str
    kind: BlockKind = BlockKind.PROSE
    position: Position = Position()


@dataclass(frozen=True, slots=True)
class Book:
    """A parsed file: its title, authors, blocks in reading order, its date as far as it is known (2024, 2024-05 or
    2024-05-31), and warnings about what could not be read, without a colon: that separates a place from its problem."""

    title: str
    authors: tuple[str, ...]
    blocks: tuple[Block, ...]
    date: str = ""
    warnings: tuple[str, ...] = ()


class SourceStatus(StrEnum):
    """Whether a source is only stored, or also indexed."""

    INDEXING = "indexing"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Source:
    """A book or paper that chunks and extractions come from. `metadata` also contains INTERNAL_METADATA."""

    id: str
    type: str
    title: str
    authors: tuple[str, ...]
    path: str
    ingested_at: str
    status: str = SourceStatus.READY
    metadata: Mapping[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def date(self) -> str | None:
        """The date that the file gives, as in Book; None if unknown. Metadata may be imported and hold anything."""
        date = self.metadata.get(DATE)
        return date if isinstance(date, str) and date else None

    def with_status(self, status: SourceStatus) -> Source:
        """Returns the source with another status."""
        return replace(self, status=status)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a source that fits the model's window."""

    id: str
    source_id: str
    content: str
    position: Position
    token_count: int
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Extraction:
    """A decision, pattern, warning or the like that was extracted from a chunk. `content` has its named parts."""

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
    """The records of one batched read, by id. Records that do not exist are left out."""

    sources: Mapping[str, Source]
    chunks: Mapping[str, Chunk]
    extractions: Mapping[str, Extraction]


def derive_id(*parts: object) -> str:
    """Derives an id of 24 hexadecimal digits, the format of a MongoDB ObjectId. The same parts give the same id."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def complete_date(written: str) -> str:
    """Completes a date that may lack its day and month to the first day that it can mean; empty for anything else.

    >>> complete_date("2024"), complete_date("2024-05"), complete_date("2024-05-31"), complete_date("soon")
    ('2024-01-01', '2024-05-01', '2024-05-31', '')
    """
    match = _DATE.fullmatch(written)
    day = f"{match[1]}-{match[2] or '01'}-{match[3] or '01'}" if match else ""
    try:
        return date.fromisoformat(day).isoformat()
    except ValueError:
        return ""


def strip_language(stem: str) -> str:
    """Returns the lowercase name of a page without its language suffix: one of FIRST_PAGES if it is the first."""
    return _LANGUAGE.sub("", stem.lower())


def format_content(content: Mapping[str, Any]) -> str:
    """Formats the content of an extraction as text: one named part per line."""
    return "\n".join(_format_parts(content))


def _format_parts(parts: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name}: {text}" for name, value in parts.items() if (text := _format_value(value)))


def _format_value(value: Any) -> str:
    """The value as in JSON, without punctuation; empty for null and empty values."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "; ".join(_format_parts(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "; ".join(filter(None, map(_format_value, value)))
    return str(value)
