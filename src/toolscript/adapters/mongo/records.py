"""Reads sources, chunks and extractions from MongoDB documents. Other pipelines write to the same collections in forms
of their own: no missing field and no unexpected value makes a read fail."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from toolscript.domain.knowledge import (
    SCHEMA_VERSION,
    UNKNOWN_SOURCE,
    Chunk,
    Extraction,
    Position,
    Source,
    SourceStatus,
)

Document = Mapping[str, Any]
T = TypeVar("T")


def read_source(document: Document) -> Source:
    return Source(
        id=_text(document["_id"]),
        type=_text(document.get("type")),
        title=_text(document.get("title"), UNKNOWN_SOURCE),
        authors=_texts(document.get("authors")),
        path=_text(document.get("path")),
        ingested_at=_text(document.get("ingested_at")),
        status=_text(document.get("status"), str(SourceStatus.READY)),
        metadata=_parts(document.get("metadata")),
        schema_version=_number(document.get("schema_version"), SCHEMA_VERSION),
    )


def read_chunk(document: Document) -> Chunk:
    return Chunk(
        id=_text(document["_id"]),
        source_id=_text(document.get("source_id")),
        content=_text(document.get("content")),
        position=_position(document.get("position")),
        token_count=_number(document.get("token_count"), 0),
        schema_version=_number(document.get("schema_version"), SCHEMA_VERSION),
    )


def read_extraction(document: Document) -> Extraction:
    return Extraction(
        id=_text(document["_id"]),
        source_id=_text(document.get("source_id")),
        chunk_id=_text(document.get("chunk_id")),
        type=_text(document.get("type")),
        content=_parts(document.get("content")),
        topics=_texts(document.get("topics")),
        extracted_at=_text(document.get("extracted_at")),
        schema_version=_number(document.get("schema_version"), SCHEMA_VERSION),
    )


def reading_order(document: Document) -> tuple[float, str]:
    """Sorts chunks by number. Chunks without a number come last, by id, in the order of their creation."""
    number = document.get("number")
    return (number if isinstance(number, int | float) else math.inf), _text(document["_id"])


def _position(value: Any) -> Position:
    if not isinstance(value, Mapping):
        return Position()
    page, line = (_number(value.get(name), None) for name in ("page", "line"))
    return Position(_text(value.get("chapter")), _text(value.get("section")), page, line)


def _text(value: Any, default: str = "") -> str:
    plain = _to_plain(value)
    return default if plain is None else str(plain)


def _texts(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(_text(each) for each in values if each is not None)


def _parts(value: Any) -> dict[str, Any]:
    """An embedded document; any other value becomes its `text`."""
    plain = _to_plain(value)
    if isinstance(plain, dict):
        return plain
    return {} if plain is None else {"text": plain}


def _number(value: Any, default: T) -> int | T:
    """An integer, also where it is stored as a string or a float."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    if isinstance(value, float) and not value.is_integer():
        return default
    try:
        return int(value)
    except ValueError:
        return default


def _to_plain(value: Any) -> Any:
    """The value as JSON; types of MongoDB (ids, dates, decimals) become strings."""
    match value:
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case Mapping():
            return {str(name): _to_plain(each) for name, each in value.items()}
        case list():
            return [_to_plain(each) for each in value]
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case _:
            return str(value)
