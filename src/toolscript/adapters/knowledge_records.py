"""Sources, chunks and extractions as the records that every store keeps: plain values, and only those that all stores
can hold. One that took what another refuses would make the choice of a store a choice of books."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.knowledge import Chunk, Extraction, Position, Source

DEEPEST = 50
LARGEST = 2**63 - 1
NO_TEXT = re.compile("[\\0\ud800-\udfff]")


def record_of(kept: Source | Chunk | Extraction) -> dict[str, Any]:
    """What a store keeps, by field. Raises Invalid, naming what, for a value that some store could not hold."""
    try:
        return {each.name: _plain(getattr(kept, each.name)) for each in fields(kept)}
    except ValueError as error:
        raise _unusable(type(kept), kept.id, str(error)) from None


def metadata_of(source_id: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a store keeps of a source's metadata. Raises Invalid as `record_of` does."""
    try:
        return {_name(name): _plain(each) for name, each in metadata.items()}
    except ValueError as error:
        raise _unusable(Source, source_id, str(error)) from None


def records_of(source_id: str, kept: Iterable[Chunk | Extraction]) -> list[dict[str, Any]]:
    """The records of a source's own, in order. Raises Invalid as well for one that is of another source."""
    records = []
    for each in kept:
        if each.source_id != source_id:
            raise _unusable(type(each), each.id, f"is of the source {each.source_id!r}, not of {source_id!r}")
        records.append(record_of(each))
    return records


def no_such_source(source_id: str) -> NotFound:
    """What to raise where a source must be there and is not."""
    return NotFound(
        f"there is no source {source_id!r}; `toolscript knowledge list` shows those that there are",
        details={"source_id": source_id},
    )


def is_text(value: str) -> bool:
    """Whether every store could hold it; what none can is no record's id either."""
    return NO_TEXT.search(value) is None


def _plain(value: Any, depth: int = 0) -> Any:
    match value:
        case None | bool():
            return value
        case str() if is_text(value):
            return str(value)
        case str():
            raise ValueError("holds a null character or half a surrogate pair, which is no text")
        case int() if abs(value) > LARGEST:
            raise ValueError("holds a whole number of more than 64 bits")
        case float() if not math.isfinite(value):
            raise ValueError(f"holds {value}, which is no number")
        case int() | float():
            return value
        case _:
            return _nested(value, depth)


def _nested(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError(f"holds values inside values deeper than {DEEPEST}")
    if isinstance(value, Position):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {_name(name): _plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    raise ValueError(f"holds a {type(value).__name__} that cannot be written as JSON")


def _name(name: str) -> str:
    if name.startswith("$"):
        raise ValueError(f"holds the name {name[:40]!r}: names that begin with $ are MongoDB's own")
    return str(_plain(name))


def _unusable(kind: type[Source | Chunk | Extraction], own_id: str, why: str) -> Invalid:
    name = kind.__name__.lower()
    return Invalid(f"the {name} {own_id!r} cannot be stored: it {why}", details={"kind": name, "id": own_id})
