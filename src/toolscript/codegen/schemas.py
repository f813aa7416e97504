"""Reads JSON Schemas, of any draft and any quality, into shapes.

A server may send anything as a schema, so nothing here raises: what cannot be understood is `Unknown`. Depth and
size are bounded, because generated text must stay readable and schemas may be endless (they can refer to
themselves). Constraints that no type can express (ranges, patterns, conditions) are left to the gateway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from toolscript.codegen.shapes import (
    ANY_OBJECT,
    NEVER,
    NULL,
    UNKNOWN,
    Field,
    Kind,
    ListOf,
    Literal,
    Primitive,
    Record,
    Reference,
    Shape,
    TupleOf,
    intersect,
    members,
    opened_up,
    unite,
    weight,
)

DEEPEST = 20
LARGEST = 5_000
MOST_VALUES = 256
MOST_DEFINITIONS = 256
LONGEST_DEFAULT = 80
_SAFE_INTEGER = 2**53

_OBJECT_WORDS = ("properties", "additionalProperties", "patternProperties")
_ARRAY_WORDS = ("items", "prefixItems")
_PRIMITIVES: dict[str, Shape] = {kind.value: Primitive(kind) for kind in Kind}

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """A part of a schema that is referred to, and so needs a name."""

    shape: Shape
    description: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A schema as a shape, with the definitions that the shape refers to."""

    root: Shape
    definitions: Mapping[Path, Definition]


def label(path: Path) -> str:
    """What a person would call a definition: the last word of its path that is not a number."""
    return next((word for word in reversed(path) if not word.isdigit()), "definition")


def read_schema(schema: object) -> Reading:
    """The shape of any value that a server sent as a schema."""
    return _Reader(schema).read()


def read_arguments(schema: object) -> Reading:
    """The shape of a call's arguments. The protocol has them be an object, whatever the schema says."""
    reading = read_schema(schema)
    objects = intersect(reading.root, ANY_OBJECT)
    return Reading(ANY_OBJECT if objects in (UNKNOWN, NEVER) else objects, reading.definitions)


class _Reader:
    """Reads one schema. Definitions wait in line to be read, so that a chain of them needs no deep recursion."""

    def __init__(self, schema: object) -> None:
        self._schema = schema
        self._left = LARGEST
        self._waiting: list[Path] = []
        self._seen: set[Path] = set()

    def read(self) -> Reading:
        root = self._shape(self._schema, 0, frozenset({()}))
        definitions: dict[Path, Definition] = {}
        while self._waiting:
            path = self._waiting.pop(0)
            target = self._target(path)
            definitions[path] = Definition(self._shape(target, 0), _text(target, "description"))
        return Reading(root, _untangled(definitions))

    def _shape(self, schema: object, depth: int, opened: frozenset[Path] | None = None) -> Shape:
        """`opened` is None where a definition is referred to by name; else those on the way, and it is opened."""
        self._left -= 1
        if schema is False:
            return NEVER
        if not isinstance(schema, Mapping) or depth > DEEPEST or self._left < 0:
            return UNKNOWN
        own = self._own(schema, depth)
        composed = [part for part in _composed(schema) if part]
        if opened is None and (own not in (UNKNOWN, ANY_OBJECT) or len(composed) > 1):
            opened = frozenset()
        shape = own
        for part in composed:
            both = _agreed(shape, unite(self._alternative(a, depth, opened) for a in part))
            # What is put together is written out once for every alternative.
            self._left -= weight(both) if opened is not None else 0
            shape = both if self._left >= 0 else opened_up(shape)
        return unite([shape, NULL]) if schema.get("nullable") is True else shape

    def _alternative(self, schema: object, depth: int, opened: frozenset[Path] | None) -> Shape:
        if not isinstance(schema, _Pointer):
            return self._shape(schema, depth + 1, opened)
        path = _path(schema)
        if path is None or self._target(path) is None:
            return UNKNOWN
        if opened is not None:
            return UNKNOWN if path in opened else self._shape(self._target(path), depth + 1, opened | {path})
        if path and path not in self._seen:
            if len(self._seen) == MOST_DEFINITIONS:
                return UNKNOWN
            self._seen.add(path)
            self._waiting.append(path)
        return Reference(path)

    def _target(self, path: Path) -> object:
        """The part of the schema at a path; None where there is none."""
        found: object = self._schema
        for word in path:
            if isinstance(found, Mapping):
                found = found.get(word)
            elif isinstance(found, list) and re.fullmatch(r"[0-9]{1,6}", word) and int(word) < len(found):
                found = found[int(word)]
            else:
                return None
        return found if isinstance(found, Mapping | bool) else None

    def _own(self, schema: Mapping[str, object], depth: int) -> Shape:
        """What the schema says itself, composition aside."""
        typed = self._typed(schema, depth)
        values = schema.get("enum")
        if "const" in schema:
            values = [schema["const"]]
        if not isinstance(values, list) or not values:
            return typed
        literals = unite(map(_literal if len(values) <= MOST_VALUES else _kind_of, values))
        both = intersect(literals, typed)
        return literals if both == NEVER else both

    def _typed(self, schema: Mapping[str, object], depth: int) -> Shape:
        stated = schema.get("type")
        names = stated if isinstance(stated, list) else [stated]
        if stated is None:
            is_object = any(word in schema for word in _OBJECT_WORDS)
            is_array = any(word in schema for word in _ARRAY_WORDS)
            names = ["object"] * is_object + ["array"] * is_array
        return unite(self._named(name, schema, depth) for name in names) if names else UNKNOWN

    def _named(self, name: object, schema: Mapping[str, object], depth: int) -> Shape:
        if name == "object":
            return self._record(schema, depth)
        if name == "array":
            return self._array(schema, depth)
        return _PRIMITIVES.get(name, UNKNOWN) if isinstance(name, str) else UNKNOWN

    def _record(self, schema: Mapping[str, object], depth: int) -> Record:
        stated, demanded = schema.get("properties"), schema.get("required")
        properties = stated if isinstance(stated, Mapping) else {}
        required = [n for n in demanded if isinstance(n, str)] if isinstance(demanded, list) else []
        fields = {
            name: Field(
                name=name,
                shape=self._shape(part, depth + 1),
                required=name in required,
                description=_text(part, "description"),
                format=_text(part, "format") or None,
                default=_default(part),
            )
            for name, part in properties.items()
            if _is_writable(name)
        }
        undeclared = [name for name in required if name not in fields and _is_writable(name)]
        fields |= {name: Field(name, UNKNOWN, required=True) for name in undeclared}
        return Record(tuple(fields.values()), self._extra(schema, depth))

    def _extra(self, schema: Mapping[str, object], depth: int) -> Shape | None:
        patterns = schema.get("patternProperties")
        parts = list(patterns.values()) if isinstance(patterns, Mapping) else []
        if "additionalProperties" in schema:
            parts.append(schema["additionalProperties"])
        return unite(self._shape(part, depth + 1) for part in parts) if parts else None

    def _array(self, schema: Mapping[str, object], depth: int) -> Shape:
        first, rest = schema.get("prefixItems"), schema.get("items")
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems")
        if not isinstance(first, list) or not first:
            return ListOf(self._shape(rest, depth + 1))
        elements = tuple(self._shape(part, depth + 1) for part in first[:MOST_VALUES])
        stated = schema.get("minItems")
        least = max(0, min(stated, len(elements))) if isinstance(stated, int) else len(elements)
        more = self._shape(rest, depth + 1) if isinstance(rest, Mapping) or rest is True else None
        return TupleOf(elements, least, more)


class _Pointer(str):
    """The text of a `$ref`, told apart from a schema that happens to be text."""

    __slots__ = ()


def _composed(schema: Mapping[str, object]) -> Iterator[list[object]]:
    """The parts that a value must all satisfy, each a list of alternatives."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield [_Pointer(reference)]
    every = schema.get("allOf")
    yield from ([part] for part in every) if isinstance(every, list) else ()
    for word in ("anyOf", "oneOf"):
        alternatives = schema.get(word)
        if isinstance(alternatives, list):
            yield alternatives


def _agreed(one: Shape, other: Shape) -> Shape:
    """Parts that contradict each other are a mistake of the schema's; the reader does not take a side."""
    both = intersect(one, other)
    return UNKNOWN if both == NEVER and NEVER not in (one, other) else both


def _path(pointer: str) -> Path | None:
    """The place that a `$ref` names in its own schema; None when it names another."""
    if pointer == "#":
        return ()
    if not pointer.startswith("#/"):
        return None
    return tuple(unquote(word).replace("~1", "/").replace("~0", "~") for word in pointer[2:].split("/"))


def _literal(value: object) -> Shape:
    kind = _kind_of(value)
    if isinstance(kind, Primitive) and isinstance(value, str | int | float) and _is_plain(value):
        return Literal(kind.kind, value)
    return kind


def _kind_of(value: object) -> Shape:
    match value:
        case None:
            return NULL
        case bool():
            return Primitive(Kind.BOOLEAN)
        case int():
            return Primitive(Kind.INTEGER)
        case float():
            return Primitive(Kind.NUMBER)
        case str():
            return Primitive(Kind.STRING)
        case list():
            return ListOf(UNKNOWN)
        case Mapping():
            return ANY_OBJECT
        case _:
            return UNKNOWN


def _is_plain(value: object) -> bool:
    """Whether a scalar means the same in every language, and can be written down."""
    if isinstance(value, int | float):
        return -_SAFE_INTEGER <= value <= _SAFE_INTEGER
    return value is None or _is_writable(value)


def _is_writable(text: object) -> bool:
    """Whether text can be a part of a source file at all: half a surrogate pair cannot be encoded."""
    return isinstance(text, str) and not re.search("[\ud800-\udfff]", text)


def _text(schema: object, word: str) -> str:
    found = schema.get(word) if isinstance(schema, Mapping) else None
    return found if isinstance(found, str) else ""


def _default(schema: object) -> str | None:
    """The default as JSON, when it is short and flat enough to be read in a comment."""
    if not isinstance(schema, Mapping) or "default" not in schema:
        return None
    value = schema["default"]
    inner = value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else [value]
    if len(inner) > LONGEST_DEFAULT or not all(map(_is_plain, inner)):
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_DEFAULT else None


def _untangled(definitions: Mapping[Path, Definition]) -> Mapping[Path, Definition]:
    """The definitions without those that come down to nothing but each other, which no compiler takes."""
    heads = {
        path: {m.path for m in members(definition.shape) if isinstance(m, Reference) and m.path in definitions}
        for path, definition in definitions.items()
    }
    users: dict[Path, list[Path]] = {path: [] for path in definitions}
    for path, used in heads.items():
        for head in used:
            users[head].append(path)
    settled = [path for path, used in heads.items() if not used]
    for path in settled:  # which grows meanwhile
        for user in users[path]:
            heads[user].discard(path)
            if not heads[user]:
                settled.append(user)
    sound = set(settled)
    shapes = {path: definitions[path].shape if path in sound else UNKNOWN for path in definitions}
    return {path: Definition(_followed(shapes, path), definitions[path].description) for path in definitions}


def _followed(shapes: Mapping[Path, Shape], path: Path) -> Shape:
    """The shape at the end of a chain of names; compilers give up on long ones."""
    shape = shapes[path]
    while isinstance(shape, Reference) and isinstance(shapes.get(shape.path), Reference):
        shape = shapes[shape.path]
    return shape
