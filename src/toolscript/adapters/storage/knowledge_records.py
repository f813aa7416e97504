"""Sources, chunks and extractions as plain records, the same for every knowledge store. A value that one store cannot
hold is rejected for all, so that any store can take over from any other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.knowledge import Chunk, Extraction, Position, Source

MAX_DEPTH = 50
MAX_INTEGER = 2**63 - 1
NOT_TEXT = re.compile("[\\0\ud800-\udfff]")


def build_record(item: Source | Chunk | Extraction) -> dict[str, Any]:
    """The fields of a source, chunk or extraction as plain values. Raises Invalid, naming the item, for a value that
    some store cannot hold."""
    try:
        return {each.name: _to_plain(getattr(item, each.name)) for each in fields(item)}
    except ValueError as error:
        raise _unusable(type(item), item.id, str(error)) from None


def build_records(source_id: str, items: Iterable[Chunk | Extraction]) -> list[dict[str, Any]]:
    """The records of a source's chunks or extractions, in order. Raises Invalid as `build_record` does, and for an item
    of another source."""
    records = []
    for item in items:
        if item.source_id != source_id:
            raise _unusable(type(item), item.id, f"belongs to the source {item.source_id!r}, not to {source_id!r}")
        records.append(build_record(item))
    return records


def build_status_values(source_id: str, status: str, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of a source to change: its status, and its metadata unless None. Raises Invalid as `build_record`."""
    values: dict[str, Any] = {"status": str(status)}
    if metadata is not None:
        try:
            values["metadata"] = _to_plain(dict(metadata))
        except ValueError as error:
            raise _unusable(Source, source_id, str(error)) from None
    return values


def unknown_source(source_id: str) -> NotFound:
    """The error for a source that does not exist."""
    return NotFound(
        f"no such source: {source_id!r}; `toolscript knowledge list` lists all sources",
        details={"source_id": source_id},
    )


def is_storable(text: str) -> bool:
    """Whether every store can hold the text: it has no null character and no unpaired surrogate."""
    return NOT_TEXT.search(text) is None


def _to_plain(value: Any, depth: int = 0) -> Any:
    match value:
        case None | bool():
            return value
        case str() if is_storable(value):
            return str(value)
        case str():
            raise ValueError("contains a null character or an unpaired surrogate")
        case int() if abs(value) > MAX_INTEGER:
            raise ValueError("contains an integer of more than 64 bits")
        case float() if not math.isfinite(value):
            raise ValueError(f"contains {value}, which is not a number of JSON")
        case int() | float():
            return value
        case _:
            return _to_plain_nested(value, depth)


def _to_plain_nested(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"contains values nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Position):
        place = {each.name: _to_plain(getattr(value, each.name)) for each in fields(value)}
        # Other programs read the positions of books, which have no lines.
        return place if value.line is not None else {name: each for name, each in place.items() if name != "line"}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {_check_name(name): _to_plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(each, depth + 1) for each in value]
    raise ValueError(f"contains a {type(value).__name__} that cannot be written as JSON")


def _check_name(name: str) -> str:
    if name.startswith("$"):
        raise ValueError(f"contains the name {name[:40]!r}: MongoDB reserves names that begin with $")
    return str(_to_plain(name))


def _unusable(kind: type[Source | Chunk | Extraction], item_id: str, problem: str) -> Invalid:
    name = kind.__name__.lower()
    return Invalid(f"the {name} {item_id!r} cannot be stored: it {problem}", details={"kind": name, "id": item_id})
