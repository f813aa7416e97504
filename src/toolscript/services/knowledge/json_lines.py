"""Sources, chunks and extractions as records of JSON lines, and back. What comes back was written by strangers: every
field is looked at, and what is wrong with one is said in a sentence."""

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

# More than any of our own making has, and together far from the 16 MB that a document of MongoDB may have.
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
_UNSAYABLE = re.compile("[\\0\ud800-\udfff]")
_KIND = re.compile(rf"[\w -]{{1,{MAX_KIND_CHARACTERS}}}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# What results are said to be that are something else: who asks for those must not find these.
_NO_KINDS = ("chunk", "extraction")


def source_line(source: Source, chunks: int, extractions: int) -> dict[str, Any]:
    """A source as a line, which says how many of the others belong to it: a file that was cut off can be told."""
    told = {**asdict(source), "authors": list(source.authors), "status": str(source.status)}
    return {"source": {**told, "chunks": chunks, "extractions": extractions}}


def chunk_line(chunk: Chunk) -> dict[str, Any]:
    """A chunk as a line; what is not known of its position is null."""
    place = chunk.position
    known = {"chapter": place.chapter or None, "section": place.section or None, "page": place.page}
    return {"chunk": {**asdict(chunk), "position": known}}


def extraction_line(extraction: Extraction) -> dict[str, Any]:
    """An extraction as a line."""
    told = {**asdict(extraction), "topics": list(extraction.topics), "chunk_id": extraction.chunk_id or None}
    return {"extraction": told}


def parse_object(line: bytes) -> dict[str, Any]:
    """The object that a line of a file holds. Raises Invalid."""
    try:
        told = json.loads(line.decode())
    except UnicodeDecodeError:
        raise Invalid("is no text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise Invalid(f"is no JSON (column {error.pos + 1})") from None
    except RecursionError:
        raise Invalid("is nested too deeply") from None
    except ValueError:  # Python reads whole numbers of a few thousand digits at most
        raise Invalid("holds a number that is too long") from None
    if not isinstance(told, dict):
        raise Invalid('is no object: give {"source": {…}}, {"chunk": {…}} or {"extraction": {…}}')
    return told


def source_of(told: Record) -> Source:
    """The source that a record tells of. Raises Invalid."""
    _check(told)
    title = _text(told, "title", MAX_LINE_BYTES)
    path = _text(told, "path", MAX_PATH_CHARACTERS, default="")
    if told.get("status") == SourceStatus.INDEXING:
        raise Invalid("the source was not complete when it was exported: ingest it again, then export it")
    return Source(
        _own_id(told) or derive_id("source", path or title),
        _text(told, "type", MAX_TYPE_CHARACTERS, default="book"),
        title,
        _texts(told, "authors"),
        path,
        _text(told, "ingested_at", MAX_TYPE_CHARACTERS, default=""),
        SourceStatus.READY,
        _object(told, "metadata", MAX_METADATA_BYTES, default={}),
    )


def find_reference(told: Record) -> tuple[int | None, int | None]:
    """How many chunks and extractions a source's record says that it has. Raises Invalid."""
    return _number(told, "chunks"), _number(told, "extractions")


def chunk_of(told: Record, source_id: str, measure: Callable[[str], int]) -> Chunk:
    """The chunk of that source that a record tells of. Its tokens are counted, whatever it says. Without an id of its
    own it gets one of what it says and where it stands, page and all: lines have no order that could tell twins apart.
    Raises Invalid."""
    _check(told)
    content = _text(told, "content", MAX_CHUNK_CHARACTERS)
    place = _object(told, "position", MAX_CONTENT_BYTES, default={})
    position = Position(
        _text(place, "chapter", MAX_LINE_BYTES, default=""),
        _text(place, "section", MAX_LINE_BYTES, default=""),
        _number(place, "page"),
    )
    own = _own_id(told) or derive_id(source_id, content, position.chapter, position.section, position.page, 0)
    return Chunk(own, source_id, content, position, measure(content))


def extraction_of(told: Record, source_id: str) -> Extraction:
    """The extraction of that source that a record tells of. One may be of no chunk, and not say when it was made.
    Raises Invalid."""
    _check(told)
    kind = _kind(told)
    content = _object(told, "content", MAX_CONTENT_BYTES)
    if not content:
        raise Invalid("content is empty: give an object with what is to be known")
    topics = tuple(dict.fromkeys(topic.strip().lower() for topic in _texts(told, "topics")))
    if any(map(_CONTROL.search, topics)):
        raise Invalid("topics holds a control character: give words")
    chunk_id = _text(told, "chunk_id", MAX_TYPE_CHARACTERS, default="")
    own = _own_id(told) or derive_id(chunk_id or source_id, kind, json.dumps(content, sort_keys=True))
    return Extraction(
        own, source_id, chunk_id, kind, content, topics, _text(told, "extracted_at", MAX_TYPE_CHARACTERS, default="")
    )


def _check(told: Record) -> None:
    """Raises Invalid for what no store can hold, and for what a later version has written."""
    _check_values(told, 0)
    version = told.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION or isinstance(version, bool):
        said = json.dumps(version)[:MAX_TYPE_CHARACTERS]
        raise Invalid(f"schema_version is {said}: this version of toolscript reads {SCHEMA_VERSION}")


def _check_values(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Invalid(f"is nested too deeply: {MAX_DEPTH} values inside each other at most")
    match value:
        case str() if _UNSAYABLE.search(value):
            raise Invalid("holds a null character or half a surrogate pair, which is no text")
        case int() if abs(value) > MAX_NUMBER:
            raise Invalid("holds a whole number of more than 64 bits")
        case float() if not math.isfinite(value):
            raise Invalid(f"holds {value}, which is no number")
        case Mapping():
            for name, each in value.items():
                if str(name).startswith("$"):
                    raise Invalid(f"holds the name {name[:MAX_TYPE_CHARACTERS]!r}: names must not begin with $")
                _check_values(name, depth + 1)
                _check_values(each, depth + 1)
        case list():
            for each in value:
                _check_values(each, depth + 1)


def _own_id(told: Record) -> str | None:
    """The record's id, if it has one. Raises Invalid."""
    value = told.get("id", told.get("_id"))
    if value is None:
        return None
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise Invalid("id is not 24 hexadecimal digits in lower case: leave it out for one to be made")
    return value


def _text(told: Record, name: str, most: int, default: str | None = None) -> str:
    """A text that is not blank; where it may be missing, the default for none."""
    value = told.get(name)
    if default is not None and (value is None or value == ""):
        return default
    if not isinstance(value, str) or not value.strip():
        raise Invalid(f"{name} {'is missing' if value is None else 'is no text'}: give some")
    if len(value) > most:
        raise Invalid(f"{name} has {len(value):,} characters: {most:,} at most")
    return value


def _kind(told: Record) -> str:
    """The type of an extraction, in lower case."""
    kind = _text(told, "type", MAX_LINE_BYTES).strip().lower()
    if kind in _NO_KINDS:
        raise Invalid(f"type is {kind!r}, which says nothing of it: give a word such as decision or warning")
    if not _KIND.fullmatch(kind):
        raise Invalid(f"type is no word of 1 to {MAX_KIND_CHARACTERS} letters, digits, spaces, - and _")
    return kind


def _texts(told: Record, name: str) -> tuple[str, ...]:
    value = told.get(name)
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > MAX_LIST_LENGTH:
        raise Invalid(f"{name} is no list of at most {MAX_LIST_LENGTH:,} texts")
    if not all(isinstance(each, str) and each.strip() and len(each) <= MAX_NAME_CHARACTERS for each in value):
        raise Invalid(f"{name} holds what is no text of 1 to {MAX_NAME_CHARACTERS} characters")
    return tuple(value)


def _object(told: Record, name: str, most: int, default: Mapping[str, Any] | None = None) -> dict[str, Any]:
    value = told.get(name)
    if value is None and default is not None:
        return dict(default)
    if not isinstance(value, Mapping):
        raise Invalid(f"{name} {'is missing' if value is None else 'is no object'}: give a JSON object")
    size = len(json.dumps(value, ensure_ascii=False).encode())
    if size > most:
        raise Invalid(f"{name} has {size:,} bytes as JSON: {most:,} at most")
    return dict(value)


def _number(told: Record, name: str) -> int | None:
    value = told.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise Invalid(f"{name} is no whole number from 0 on: leave it out where it is not known")
    return value
