"""The types that JSON Schemas describe, in no language: what is shared between the languages they are written in.

Shapes are values: frozen, comparable, and at most as deep as `schemas.py` lets them be, so that walking them by
recursion is safe. A shape may allow more than its schema does and never, knowingly, less: the gateway checks the
arguments of a call against the schema itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

_MOST_ALTERNATIVES = 64


class Kind(StrEnum):
    """The scalar types of JSON Schema."""

    STRING = "string"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything: the schema does not say."""


@dataclass(frozen=True, slots=True)
class Never:
    """Nothing: the schema forbids every value."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """Any value of a scalar type."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Literal:
    """One value. The kind tells `true` from `1`, which Python holds to be equal. (Of null there is only one.)"""

    kind: Kind
    value: str | float


@dataclass(frozen=True, slots=True)
class ListOf:
    """An array whose elements are alike."""

    element: Shape


@dataclass(frozen=True, slots=True)
class TupleOf:
    """An array whose first elements each have a shape, the first `least` of them always there."""

    elements: tuple[Shape, ...]
    least: int
    rest: Shape | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A declared property of an object, with what people are told of it."""

    name: str
    shape: Shape
    required: bool = False
    description: str = ""
    format: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """An object. `extra` is the shape of undeclared properties, `Never` where they are forbidden, None if unsaid."""

    fields: tuple[Field, ...] = ()
    extra: Shape | None = None


@dataclass(frozen=True, slots=True)
class Union:
    """Any of several shapes; made by `unite`, which keeps it flat."""

    members: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A definition, by its place in the schema; the empty path is the schema itself."""

    path: tuple[str, ...]


Shape: TypeAlias = Unknown | Never | Primitive | Literal | ListOf | TupleOf | Record | Union | Reference

UNKNOWN = Unknown()
NEVER = Never()
NULL = Primitive(Kind.NULL)
ANY_OBJECT = Record()


def members(shape: Shape) -> tuple[Shape, ...]:
    """The alternatives that a shape is made of: several for a union, none for `Never`, else the shape alone."""
    if isinstance(shape, Never):
        return ()
    return shape.members if isinstance(shape, Union) else (shape,)


def unite(shapes: Iterable[Shape]) -> Shape:
    """What fits any of the shapes, each alternative once and in the order of its first mention."""
    found = dict.fromkeys(member for shape in shapes for member in members(shape))
    if UNKNOWN in found:
        return UNKNOWN
    kinds = {shape.kind for shape in found if isinstance(shape, Primitive)}
    if Kind.NUMBER in kinds:
        kinds.add(Kind.INTEGER)
        found.pop(Primitive(Kind.INTEGER), None)
    kept = tuple(shape for shape in found if not (isinstance(shape, Literal) and shape.kind in kinds))
    if not kept:
        return NEVER
    return kept[0] if len(kept) == 1 else Union(kept)


def intersect(one: Shape, other: Shape, levels: int = 2) -> Shape:
    """What fits both shapes, or more where saying it exactly would multiply alternatives: beyond some `levels`.

    A definition is not opened here; where it and an object both say something, nothing is promised.
    """
    if other in (one, UNKNOWN):
        return one
    if one == UNKNOWN:
        return other
    if ANY_OBJECT in (one, other):
        return unite(m for m in members(one if other == ANY_OBJECT else other) if isinstance(m, Record | Reference))
    if isinstance(one, Union) or isinstance(other, Union):
        return _distributed(one, other, levels)
    match one, other:
        case (Reference(), narrow) | (narrow, Reference()):
            return narrow if isinstance(narrow, Primitive | Literal | Never) else UNKNOWN
        case Record(), Record():
            return _merged(one, other, levels - 1) if levels else UNKNOWN
        case (ListOf() | TupleOf(), ListOf() | TupleOf()):
            return _common_array(one, other, levels - 1) if levels else UNKNOWN
        case (Primitive() | Literal(), Primitive() | Literal()):
            return _common_scalar(one, other)
        case _:
            return NEVER


def opened_up(shape: Shape) -> Shape:
    """The shape, for when there is more to say of it than is said: its objects may have other properties."""
    return unite(replace(m, extra=UNKNOWN) if isinstance(m, Record) else m for m in members(shape))


def weight(shape: Shape) -> int:
    """How many shapes one is made of, as it would be written down: a part that is there twice counts twice."""
    match shape:
        case ListOf(element):
            return 1 + weight(element)
        case TupleOf(elements, _, rest):
            return 1 + sum(map(weight, elements)) + (0 if rest is None else weight(rest))
        case Record(fields, extra):
            return 1 + sum(weight(field.shape) for field in fields) + (0 if extra is None else weight(extra))
        case Union():
            return sum(map(weight, shape.members))
        case _:
            return 1


def accepts_nothing_said(shape: Shape) -> bool:
    """Whether an empty object fits: a call then needs no arguments."""
    return any(isinstance(m, Record) and not any(f.required for f in m.fields) for m in members(shape))


def _distributed(one: Shape, other: Shape, levels: int) -> Shape:
    left, right = members(one), members(other)
    objects = [sum(not isinstance(m, Primitive | Literal) for m in side) for side in (left, right)]
    if objects[0] * objects[1] > _MOST_ALTERNATIVES or len(left) * len(right) > _MOST_ALTERNATIVES**2:
        return opened_up(one if len(left) <= len(right) else other)
    return unite(intersect(a, b, levels) for a in left for b in right)


def _merged(one: Record, other: Record, levels: int) -> Record:
    fields = {field.name: field for field in one.fields}
    for field in other.fields:
        known = fields.get(field.name)
        fields[field.name] = field if known is None else _merged_field(known, field, levels)
    extras = [extra for extra in (one.extra, other.extra) if extra is not None]
    extra = intersect(extras[0], extras[-1], levels) if extras else None
    return Record(tuple(fields.values()), extra)


def _merged_field(one: Field, other: Field, levels: int) -> Field:
    return replace(
        one,
        shape=intersect(one.shape, other.shape, levels),
        required=one.required or other.required,
        description=one.description or other.description,
        format=one.format or other.format,
        default=other.default if one.default is None else one.default,
    )


def _common_array(one: ListOf | TupleOf, other: ListOf | TupleOf, levels: int) -> Shape:
    match one, other:
        case ListOf(), ListOf():
            return ListOf(intersect(one.element, other.element, levels))
        case TupleOf(), ListOf():
            return replace(one, elements=tuple(intersect(e, other.element, levels) for e in one.elements))
        case ListOf(), TupleOf():
            return _common_array(other, one, levels)
        case _:
            return one


def _common_scalar(one: Primitive | Literal, other: Primitive | Literal) -> Shape:
    """Equal scalars were dealt with; an integer is a number, a literal is of its kind."""
    for narrow, wide in ((one, other), (other, one)):
        is_kind = narrow.kind == wide.kind or (narrow.kind, wide.kind) == (Kind.INTEGER, Kind.NUMBER)
        if isinstance(wide, Primitive) and is_kind:
            return narrow
    return NEVER
