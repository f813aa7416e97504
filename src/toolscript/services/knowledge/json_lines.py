"""Formats sources, chunks and extractions as JSON lines, and parses them. Lines are untrusted input: every field is
checked, and errors name the field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import SCHEMA_VERSION, Chunk, Extraction, Position, Source, SourceStatus, derive_id

KINDS = ("source", "chunk", "extraction")
Record = Mapping[str, Any]
# The numbers of chunks and extractions; None where the record has none.
Counts = tuple[int | None, int | None]

# More than our own records need, and together far below MongoDB's limit of 16 MB per document.
MAX_LINE_BYTES = 2_000
MAX_PATH_CHARACTERS = 4_096
MAX_CHUNK_CHARACTERS = 8_000
MAX_LIST_LENGTH = 1_000
MAX_NAME_CHARACTERS = 200
MAX_CONTENT_BYTES = 16_000
MAX_METADATA_BYTES = 4_000_000
MAX_TYPE_CHARACTERS = 100
MAX_KIND_CHARACTERS = 40
MAX_NUMBER = 2**63 - 1
MAX_DEPTH = 32

_ID = re.compile("[0-9a-f]{24}")
_NOT_TEXT = re.compile("[\\0\ud800-\udfff]")
_KIND = re.compile(rf"[\w -]{{1,{MAX_KIND_CHARACTERS}}}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Types that search uses for other results: a filter by them must not find extractions.
_NO_KINDS = ("chunk", "extraction")


def format_source(source: Source, chunks: int, extractions: int) -> dict[str, Any]:
    """The record of a source. It has the numbers of its chunks and extractions, so that a truncated file is noticed."""
    record = {**asdict(source), "authors": list(source.authors), "status": str(source.status)}
    return {"source": {**record, "chunks": chunks, "extractions": extractions}}


def format_chunk(chunk: Chunk) -> dict[str, Any]:
    """The record of a chunk; unknown parts of its position are null."""
    place = chunk.position
    known = {"chapter": place.chapter or None, "section": place.section or None, "page": place.page}
    known |= {"line": place.line} if place.line is not None else {}
    return {"chunk": {**asdict(chunk), "position": known}}


def format_extraction(extraction: Extraction) -> dict[str, Any]:
    record = {**asdict(extraction), "topics": list(extraction.topics), "chunk_id": extraction.chunk_id or None}
    return {"extraction": record}


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object on a line of a file. Raises Invalid."""
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError:
        raise Invalid("is not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise Invalid(f"is not valid JSON (column {error.pos + 1})") from None
    except RecursionError:
        raise Invalid("is nested too deeply") from None
    except ValueError:  # Python parses integers of at most a few thousand digits
        raise Invalid("contains a number that is too long") from None
    if not isinstance(record, dict):
        raise Invalid('is not an object: give {"source": {…}}, {"chunk": {…}} or {"extraction": {…}}')
    return record


def parse_source(record: Record) -> tuple[Source, Counts]:
    """The source in a record, and the numbers of its chunks and extractions. Raises Invalid."""
    _check(record)
    title = _text(record, "title", MAX_LINE_BYTES)
    path = _text(record, "path", MAX_PATH_CHARACTERS, default="")
    if record.get("status") == SourceStatus.INDEXING:
        raise Invalid("the source was not complete when it was exported: ingest it again, then export it")
    source = Source(
        _read_id(record) or derive_id("source", path or title),
        _text(record, "type", MAX_TYPE_CHARACTERS, default="book"),
        title,
        _texts(record, "authors"),
        path,
        _text(record, "ingested_at", MAX_TYPE_CHARACTERS, default=""),
        SourceStatus.READY,
        _object(record, "metadata", MAX_METADATA_BYTES, default={}),
    )
    return source, (_number(record, "chunks"), _number(record, "extractions"))


def parse_chunk(record: Record, source_id: str, measure: Callable[[str], int]) -> Chunk:
    """The chunk of that source in a record. Its tokens are counted again. Without an id it gets one derived from its
    text and position, page included: lines have no order that could distinguish equal chunks. Raises Invalid."""
    _check(record)
    content = _text(record, "content", MAX_CHUNK_CHARACTERS)
    place = _object(record, "position", MAX_CONTENT_BYTES, default={})
    position = Position(
        _text(place, "chapter", MAX_LINE_BYTES, default=""),
        _text(place, "section", MAX_LINE_BYTES, default=""),
        _number(place, "page"),
        _number(place, "line"),
    )
    chunk_id = _read_id(record) or derive_id(source_id, content, position.chapter, position.section, position.page, 0)
    return Chunk(chunk_id, source_id, content, position, measure(content))


def parse_extraction(record: Record, source_id: str) -> Extraction:
    """The extraction of that source in a record; chunk and time are optional. Raises Invalid."""
    _check(record)
    kind = _kind(record)
    content = _object(record, "content", MAX_CONTENT_BYTES)
    if not content:
        raise Invalid("content is empty: give an object")
    topics = tuple(dict.fromkeys(topic.strip().lower() for topic in _texts(record, "topics")))
    if any(map(_CONTROL.search, topics)):
        raise Invalid("topics contains a control character: give words")
    chunk_id = _text(record, "chunk_id", MAX_TYPE_CHARACTERS, default="")
    extraction_id = _read_id(record) or derive_id(chunk_id or source_id, kind, json.dumps(content, sort_keys=True))
    extracted_at = _text(record, "extracted_at", MAX_TYPE_CHARACTERS, default="")
    return Extraction(extraction_id, source_id, chunk_id, kind, content, topics, extracted_at)


def _check(record: Record) -> None:
    """Raises Invalid for values that no store accepts, and for records of a later version."""
    _check_values(record, 0)
    version = record.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION or isinstance(version, bool):
        version_text = json.dumps(version)[:MAX_TYPE_CHARACTERS]
        raise Invalid(f"schema_version is {version_text}: this version of toolscript reads {SCHEMA_VERSION}")


def _check_values(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Invalid(f"is nested too deeply: at most {MAX_DEPTH} levels are allowed")
    match value:
        case str() if _NOT_TEXT.search(value):
            raise Invalid("contains a null character or half a surrogate pair")
        case int() if abs(value) > MAX_NUMBER:
            raise Invalid("contains an integer of more than 64 bits")
        case float() if not math.isfinite(value):
            raise Invalid(f"contains {value}, which is not a finite number")
        case Mapping():
            for name, member in value.items():
                if str(name).startswith("$"):
                    raise Invalid(f"contains the name {name[:MAX_TYPE_CHARACTERS]!r}: names must not begin with $")
                _check_values(name, depth + 1)
                _check_values(member, depth + 1)
        case list():
            for member in value:
                _check_values(member, depth + 1)


def _read_id(record: Record) -> str | None:
    """The record's id, or None. Raises Invalid."""
    value = record.get("id", record.get("_id"))
    if value is None:
        return None
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise Invalid("id is not 24 hexadecimal digits in lower case: leave it out to have one generated")
    return value


def _text(record: Record, name: str, maximum: int, default: str | None = None) -> str:
    """A text that is not blank; the default, if there is one, when it is missing."""
    value = record.get(name)
    if default is not None and (value is None or value == ""):
        return default
    if not isinstance(value, str) or not value.strip():
        raise Invalid(f"{name} {'is missing' if value is None else 'is not a text'}: give a text that is not blank")
    if len(value) > maximum:
        raise Invalid(f"{name} has {len(value):,} characters: at most {maximum:,} are allowed")
    return value


def _kind(record: Record) -> str:
    """The type of an extraction, in lower case."""
    kind = _text(record, "type", MAX_LINE_BYTES).strip().lower()
    if kind in _NO_KINDS:
        raise Invalid(f"type is {kind!r}, which is reserved: give a word such as decision or warning")
    if not _KIND.fullmatch(kind):
        raise Invalid(f"type is not 1 to {MAX_KIND_CHARACTERS} letters, digits, spaces, - and _")
    return kind


def _texts(record: Record, name: str) -> tuple[str, ...]:
    value = record.get(name)
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > MAX_LIST_LENGTH:
        raise Invalid(f"{name} is not a list of at most {MAX_LIST_LENGTH:,} texts")
    if not all(isinstance(text, str) and text.strip() and len(text) <= MAX_NAME_CHARACTERS for text in value):
        raise Invalid(f"{name} contains something other than texts of 1 to {MAX_NAME_CHARACTERS} characters")
    return tuple(value)


def _object(record: Record, name: str, maximum: int, default: Mapping[str, Any] | None = None) -> dict[str, Any]:
    value = record.get(name)
    if value is None and default is not None:
        return dict(default)
    if not isinstance(value, Mapping):
        raise Invalid(f"{name} {'is missing' if value is None else 'is not an object'}: give a JSON object")
    size = len(json.dumps(value, ensure_ascii=False).encode())
    if size > maximum:
        raise Invalid(f"{name} has {size:,} bytes as JSON: at most {maximum:,} are allowed")
    return dict(value)


def _number(record: Record, name: str) -> int | None:
    value = record.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise Invalid(f"{name} is not a whole number from 0: leave it out if it is not known")
    return value
