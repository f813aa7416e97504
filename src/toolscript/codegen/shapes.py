"""The types that JSON Schemas describe, independent of the language that they are written in.

Shapes are frozen, comparable, and at most as deep as `schemas.py` allows, so that recursion over them is safe. A
shape may allow more than its schema, never less: the gateway checks a call's arguments against the schema itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

_MAX_ALTERNATIVES = 64
_CHARACTERS_PER_SHAPE = 256


class Kind(StrEnum):
    """The scalar types of JSON Schema."""

    STRING = "string"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Any value: the schema does not restrict it."""


@dataclass(frozen=True, slots=True)
class Never:
    """No value: the schema forbids all."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """Any value of a scalar type."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Literal:
    """One value other than null. The kind distinguishes `true` from `1`: they are equal in Python."""

    kind: Kind
    value: str | float


@dataclass(frozen=True, slots=True)
class ListOf:
    """An array of elements with the same shape."""

    element: Shape


@dataclass(frozen=True, slots=True)
class TupleOf:
    """An array with first elements that each have a shape of their own; at least `min_length` of them are present."""

    elements: tuple[Shape, ...]
    min_length: int
    rest: Shape | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A declared property of an object, with its documentation."""

    name: str
    shape: Shape
    required: bool = False
    description: str = ""
    format: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """An object. `extra` is the shape of undeclared properties: `Never` if forbidden, None if not specified."""

    fields: tuple[Field, ...] = ()
    extra: Shape | None = None


@dataclass(frozen=True, slots=True)
class Union:
    """One of several shapes. Created by `unite`, to keep it flat."""

    members: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A definition, by its path in the schema. The empty path is the schema itself."""

    path: tuple[str, ...]


Shape: TypeAlias = Unknown | Never | Primitive | Literal | ListOf | TupleOf | Record | Union | Reference

UNKNOWN = Unknown()
NEVER = Never()
NULL = Primitive(Kind.NULL)
ANY_OBJECT = Record()


def members(shape: Shape) -> tuple[Shape, ...]:
    """The alternatives of a shape: several for a union, none for `Never`, otherwise the shape itself."""
    if isinstance(shape, Never):
        return ()
    return shape.members if isinstance(shape, Union) else (shape,)


def unite(shapes: Iterable[Shape]) -> Shape:
    """The union of the shapes: each alternative once, in the order of first appearance."""
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
    """The values that fit both shapes. Below `levels` of nesting the result may allow more, to limit its size.

    References are not resolved: the intersection of a reference and an object is `Unknown`.
    """
    if other in (one, UNKNOWN):
        return one
    if one == UNKNOWN:
        return other
    if ANY_OBJECT in (one, other):
        return unite(m for m in members(one if other == ANY_OBJECT else other) if isinstance(m, Record | Reference))
    if isinstance(one, Union) or isinstance(other, Union):
        return _intersect_unions(one, other, levels)
    match one, other:
        case (Reference(), narrow) | (narrow, Reference()):
            return narrow if isinstance(narrow, Primitive | Literal | Never) else UNKNOWN
        case Record(), Record():
            return _merge_records(one, other, levels - 1) if levels else UNKNOWN
        case (ListOf() | TupleOf(), ListOf() | TupleOf()):
            return _intersect_arrays(one, other, levels - 1) if levels else UNKNOWN
        case (Primitive() | Literal(), Primitive() | Literal()):
            return _intersect_scalars(one, other)
        case _:
            return NEVER


def open_records(shape: Shape) -> Shape:
    """The shape with every object allowing further properties: used where a restriction had to be dropped."""
    return unite(replace(m, extra=UNKNOWN) if isinstance(m, Record) else m for m in members(shape))


def count_shapes(shape: Shape) -> int:
    """The number of shapes in one when it is written out: a part that occurs twice counts twice."""
    match shape:
        case ListOf(element):
            return 1 + count_shapes(element)
        case TupleOf(elements, _, rest):
            return 1 + sum(map(count_shapes, elements)) + (0 if rest is None else count_shapes(rest))
        case Record(fields, extra):
            return (
                1
                + sum(count_shapes(field.shape) + count_text(field.name, field.description) for field in fields)
                + (0 if extra is None else count_shapes(extra))
            )
        case Union():
            return sum(map(count_shapes, shape.members))
        case _:
            return 1


def count_text(*texts: str) -> int:
    """The number of shapes that take as long to write as these texts."""
    return sum(map(len, texts)) // _CHARACTERS_PER_SHAPE


def accepts_no_arguments(shape: Shape) -> bool:
    """Whether an empty object fits, so that a call needs no arguments."""
    return any(isinstance(m, Record) and not any(f.required for f in m.fields) for m in members(shape))


def _intersect_unions(one: Shape, other: Shape, levels: int) -> Shape:
    left, right = members(one), members(other)
    objects = [sum(not isinstance(m, Primitive | Literal) for m in side) for side in (left, right)]
    if objects[0] * objects[1] > _MAX_ALTERNATIVES or len(left) * len(right) > _MAX_ALTERNATIVES**2:
        return open_records(one if len(left) <= len(right) else other)
    return unite(intersect(a, b, levels) for a in left for b in right)


def _merge_records(one: Record, other: Record, levels: int) -> Record:
    fields = {field.name: field for field in one.fields}
    for field in other.fields:
        known = fields.get(field.name)
        fields[field.name] = field if known is None else _merge_fields(known, field, levels)
    extras = [extra for extra in (one.extra, other.extra) if extra is not None]
    extra = intersect(extras[0], extras[-1], levels) if extras else None
    return Record(tuple(fields.values()), extra)


def _merge_fields(one: Field, other: Field, levels: int) -> Field:
    return replace(
        one,
        shape=intersect(one.shape, other.shape, levels),
        required=one.required or other.required,
        description=one.description or other.description,
        format=one.format or other.format,
        default=other.default if one.default is None else one.default,
    )


def _intersect_arrays(one: ListOf | TupleOf, other: ListOf | TupleOf, levels: int) -> Shape:
    match one, other:
        case ListOf(), ListOf():
            return ListOf(intersect(one.element, other.element, levels))
        case TupleOf(), ListOf():
            return replace(one, elements=tuple(intersect(e, other.element, levels) for e in one.elements))
        case ListOf(), TupleOf():
            return _intersect_arrays(other, one, levels)
        case _:
            return one


def _intersect_scalars(one: Primitive | Literal, other: Primitive | Literal) -> Shape:
    """Intersects two different scalars: an integer is a number, and a literal belongs to its kind."""
    for narrow, wide in ((one, other), (other, one)):
        is_kind = narrow.kind == wide.kind or (narrow.kind, wide.kind) == (Kind.INTEGER, Kind.NUMBER)
        if isinstance(wide, Primitive) and is_kind:
            return narrow
    return NEVER
