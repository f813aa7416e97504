"""Filters on sources: by title, authors, date, kind of file and other metadata. The store is the truth, so a filter is
resolved there to the ids of the matching sources; the index needs no copy of their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from toolscript.domain.errors import InvalidArguments
from toolscript.domain.files.kinds import FileKind, find_kind
from toolscript.domain.filters import LIST_OPS, RANGE_OPS, Condition, Filter, Op, matches, parse_moment
from toolscript.domain.knowledge import INTERNAL_METADATA, Source, complete_date

KIND = "kind"
_KINDS = frozenset(kind.casefold() for kind in FileKind)


@dataclass(frozen=True, slots=True)
class SourceSelection:
    """The sources that passed a filter, and the others."""

    ids: frozenset[str]
    others: frozenset[str]

    def to_conditions(self) -> tuple[Condition, ...]:
        """The conditions for points of these sources, by the smaller of both sets: an engine compares each point with
        all values. Points of sources that the store does not have may pass."""
        if not self.others:
            return ()
        if len(self.others) < len(self.ids):
            return (Condition("source_id", Op.NIN, sorted(self.others)),)
        return (Condition("source_id", Op.IN, sorted(self.ids)),)


def check_source_filter(where: Filter) -> None:
    """Raises InvalidArguments for a kind of file that does not exist."""
    for condition in (*where.must, *where.should, *where.must_not):
        if condition.field != KIND or condition.op not in {Op.EQ, Op.NE, *LIST_OPS}:
            continue
        values = condition.value if condition.op in LIST_OPS else [condition.value]
        unknown = [value for value in values if not isinstance(value, str) or value.casefold() not in _KINDS]
        if unknown:
            raise InvalidArguments(
                f"filters: unknown kind of file {unknown[0]!r}: use one of {', '.join(FileKind)}",
                details={"field": "filters", "allowed": list(FileKind)},
            )


def select_sources(sources: Iterable[Source], where: Filter) -> SourceSelection:
    """The sources that pass a filter on the fields of `read_field`. Case does not matter."""
    folded = _map_conditions(where, _fold_condition)
    names = {condition.field for group in (where.must, where.should, where.must_not) for condition in group}
    passed: dict[bool, set[str]] = {True: set(), False: set()}
    for source in sources:
        passed[matches(folded, {name: _fold(read_field(source, name)) for name in names})].add(source.id)
    return SourceSelection(frozenset(passed[True]), frozenset(passed[False]))


def read_field(source: Source, name: str) -> Any:
    """A field of a source that can be filtered: one of FIELDS, or metadata; None if it has none. The path is not among
    them: whoever may search could guess it."""
    if read := FIELDS.get(name):
        return read(source)
    return None if name in INTERNAL_METADATA else source.metadata.get(name)


def _read_date(source: Source) -> Any:
    """The day for comparisons, and the date as the file gives it."""
    day = complete_date(source.date or "")
    return [day, source.date] if day else source.date


def _read_year(source: Source) -> Any:
    day = complete_date(source.date or "")
    return int(day[:4]) if day else source.metadata.get("year")


FIELDS: Mapping[str, Callable[[Source], Any]] = {
    "title": lambda source: source.title,
    "authors": lambda source: source.authors,
    "type": lambda source: source.type,
    KIND: lambda source: find_kind(PurePath(source.path)),
    "extension": lambda source: PurePath(source.path).suffix.lower() or None,
    "date": _read_date,
    "year": _read_year,
}


def _map_conditions(where: Filter, change: Callable[[Condition], Condition]) -> Filter:
    must, should, must_not = (tuple(map(change, group)) for group in (where.must, where.should, where.must_not))
    return Filter(must, should, must_not)


def _fold_condition(condition: Condition) -> Condition:
    if condition.op in RANGE_OPS:
        return condition
    return Condition(condition.field, condition.op, _fold(condition.value))


def _fold(value: Any) -> Any:
    """The value without case; dates stay, because their form has capitals."""
    if isinstance(value, str):
        return value if value[:1].isdigit() and parse_moment(value) else value.casefold()
    if isinstance(value, Sequence):
        return [_fold(name) for name in value]
    return value
