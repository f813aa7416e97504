"""Reads JSON Schemas, of any draft and any quality, into shapes.

A server may send anything as a schema, so nothing here raises: a part that cannot be understood becomes `Unknown`.
Depth and size are bounded, because generated text must stay readable and schemas can be endless (they can refer to
themselves). Everything that costs time or text is paid from one budget of shapes, so that any schema is read within
some 50 ms; when it is used up, the rest becomes `Unknown`. The gateway checks the constraints that no type can express
(ranges, patterns, conditions).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice
from urllib.parse import unquote

from toolscript.codegen import shapes

MAX_DEPTH = 20
MAX_SHAPES = 5_000
MAX_VALUES = 256
MAX_DEFINITIONS = 256
MAX_DEFAULT_LENGTH = 80
MAX_POINTER_LENGTH = 512
MAX_TYPES = 16
# How many of these take as long as one shape.
NAMES_PER_SHAPE = 128
LITERALS_PER_SHAPE = 4
_SAFE_INTEGER = 2**53
_SURROGATE = re.compile("[\ud800-\udfff]")

_OBJECT_WORDS = ("properties", "additionalProperties", "patternProperties")
_ARRAY_WORDS = ("items", "prefixItems")
_PRIMITIVES: dict[str, shapes.Shape] = {kind.value: shapes.Primitive(kind) for kind in shapes.Kind}
# The shape of a value by its Python type; the order matters, because bool is a subclass of int.
_KINDS: tuple[tuple[type, shapes.Shape], ...] = (
    (type(None), shapes.NULL),
    (bool, shapes.Primitive(shapes.Kind.BOOLEAN)),
    (int, shapes.Primitive(shapes.Kind.INTEGER)),
    (float, shapes.Primitive(shapes.Kind.NUMBER)),
    (str, shapes.Primitive(shapes.Kind.STRING)),
    (list, shapes.ListOf(shapes.UNKNOWN)),
    (Mapping, shapes.ANY_OBJECT),
)

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """A part of a schema that a `$ref` points to, and that therefore needs a name."""

    shape: shapes.Shape
    description: str = ""


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """The shape of a schema, with the definitions that it refers to."""

    root: shapes.Shape
    definitions: Mapping[Path, Definition]


def get_label(path: Path) -> str:
    """A readable name for a definition: the last part of its path that is not a number."""
    return next((word for word in reversed(path) if not word.isdigit()), "definition")


def read_schema(schema: object, max_shapes: int = MAX_SHAPES) -> SchemaShape:
    """Reads any value that a server sent as a schema."""
    return _SchemaReader(schema, max_shapes).read()


def read_arguments(schema: object, max_shapes: int = MAX_SHAPES) -> SchemaShape:
    """Reads the schema of a call's arguments. In MCP it must be an object."""
    read = read_schema(schema, max_shapes)
    objects = shapes.intersect(read.root, shapes.ANY_OBJECT)
    return SchemaShape(shapes.ANY_OBJECT if objects in (shapes.UNKNOWN, shapes.NEVER) else objects, read.definitions)


class _SchemaReader:
    """Reads one schema. Definitions go through a queue, so that a chain of them needs no deep recursion."""

    def __init__(self, schema: object, max_shapes: int) -> None:
        self._schema = schema
        self._left = max_shapes
        self._waiting: list[Path] = []
        self._seen: set[Path] = set()

    def read(self) -> SchemaShape:
        root = self._shape(self._schema, 0, frozenset({()}))
        definitions: dict[Path, Definition] = {}
        while self._waiting:
            path = self._waiting.pop(0)
            target = self._target(path)
            definitions[path] = Definition(self._shape(target, 0), _text(target, "description"))
        return SchemaShape(root, _break_cycles(definitions))

    def _shape(self, schema: object, depth: int, opened: frozenset[Path] | None = None) -> shapes.Shape:
        """Reads a schema. With `opened` None, references stay references; otherwise they are expanded in place, and
        `opened` has the paths of the references being expanded, to stop at cycles."""
        self._left -= 1
        if schema is False:
            return shapes.NEVER
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or self._left < 0:
            return shapes.UNKNOWN
        own = self._own(schema, depth)
        composed = list(islice(filter(None, _find_compositions(schema)), max(self._left, 0) + 2))
        if opened is None and (own not in (shapes.UNKNOWN, shapes.ANY_OBJECT) or len(composed) > 1):
            opened = frozenset()
        shape = own
        for part in composed:
            if self._left < 0:
                shape = shapes.open_records(shape)
                break
            both = _combine(shape, shapes.unite(self._each(part, lambda a: self._alternative(a, depth, opened))))
            # A combined shape is written out once for every alternative.
            self._left -= shapes.count_shapes(both) if opened is not None else 0
            shape = both if self._left >= 0 else shapes.open_records(shape)
        return shapes.unite([shape, shapes.NULL]) if schema.get("nullable") is True else shape

    def _each(self, parts: Iterable[object], read: Callable[[object], shapes.Shape]) -> Iterator[shapes.Shape]:
        """Reads the parts of a union. The union is unknown when the budget ends before the parts do."""
        for part in parts:
            if self._left < 0:
                yield shapes.UNKNOWN
                return
            yield read(part)

    def _alternative(self, schema: object, depth: int, opened: frozenset[Path] | None) -> shapes.Shape:
        if not isinstance(schema, _Pointer):
            return self._shape(schema, depth + 1, opened)
        path = _path(schema)
        target = self._target(path) if path is not None else None
        self._left -= len(path or ()) // LITERALS_PER_SHAPE
        if path is None or target is None:
            return shapes.UNKNOWN
        if opened is not None:
            return shapes.UNKNOWN if path in opened else self._shape(target, depth + 1, opened | {path})
        if path and path not in self._seen:
            if len(self._seen) == MAX_DEFINITIONS:
                return shapes.UNKNOWN
            self._seen.add(path)
            self._waiting.append(path)
        return shapes.Reference(path)

    def _target(self, path: Path) -> object:
        """The part of the schema at a path, or None."""
        found: object = self._schema
        for word in path:
            if isinstance(found, Mapping):
                found = found.get(word)
            elif isinstance(found, list) and re.fullmatch(r"[0-9]{1,6}", word) and int(word) < len(found):
                found = found[int(word)]
            else:
                return None
        return found if isinstance(found, Mapping | bool) else None

    def _own(self, schema: Mapping[str, object], depth: int) -> shapes.Shape:
        """The shape from the schema's own keywords, without `$ref`, `allOf`, `anyOf` and `oneOf`."""
        typed = self._read_type(schema, depth)
        values = schema.get("enum")
        if "const" in schema:
            values = [schema["const"]]
        if not isinstance(values, list) or not values:
            return typed
        if len(values) <= MAX_VALUES:
            self._left -= len(values) // LITERALS_PER_SHAPE + shapes.count_text(
                *(v for v in values if isinstance(v, str))
            )
            literals = shapes.unite(map(_literal, values))
        else:
            self._left -= len(values) // NAMES_PER_SHAPE
            literals = shapes.unite(map(_kind_of, {type(value): value for value in values}.values()))
        both = shapes.intersect(literals, typed)
        return literals if both == shapes.NEVER else both

    def _read_type(self, schema: Mapping[str, object], depth: int) -> shapes.Shape:
        stated = schema.get("type")
        names = [name if isinstance(name, str) else "" for name in (stated if isinstance(stated, list) else [stated])]
        if stated is None:
            is_object = any(word in schema for word in _OBJECT_WORDS)
            is_array = any(word in schema for word in _ARRAY_WORDS)
            names = ["object"] * is_object + ["array"] * is_array
        if not names or len(names) > MAX_TYPES:
            return shapes.UNKNOWN
        if len(names) == 1:
            return self._read_named_type(names[0], schema, depth)
        return shapes.unite(self._read_named_type(name, schema, depth) for name in dict.fromkeys(names))

    def _read_named_type(self, name: str, schema: Mapping[str, object], depth: int) -> shapes.Shape:
        if name == "object":
            return self._record(schema, depth)
        if name == "array":
            return self._array(schema, depth)
        return _PRIMITIVES.get(name, shapes.UNKNOWN)

    def _record(self, schema: Mapping[str, object], depth: int) -> shapes.Record:
        stated, demanded = schema.get("properties"), schema.get("required")
        properties = stated if isinstance(stated, Mapping) else {}
        names = demanded if isinstance(demanded, list) else []
        self._left -= len(names) // NAMES_PER_SHAPE
        required = dict.fromkeys(name for name in names if isinstance(name, str)) if self._left >= 0 else {}
        fields: dict[str, shapes.Field] = {}
        for name, part in chain(properties.items(), ((n, None) for n in required if n not in properties)):
            if self._left < 0:
                return shapes.Record(tuple(fields.values()), shapes.UNKNOWN)
            if _is_writable(name):
                description, form = _text(part, "description"), _text(part, "format")
                self._left -= shapes.count_text(name, description, form)
                shape = self._shape(part, depth + 1)
                fields[name] = shapes.Field(name, shape, name in required, description, form or None, _default(part))
        return shapes.Record(tuple(fields.values()), self._extra(schema, depth))

    def _extra(self, schema: Mapping[str, object], depth: int) -> shapes.Shape | None:
        patterns = schema.get("patternProperties")
        parts = list(patterns.values()) if isinstance(patterns, Mapping) else []
        if "additionalProperties" in schema:
            parts.append(schema["additionalProperties"])
        return shapes.unite(self._each(parts, lambda part: self._shape(part, depth + 1))) if parts else None

    def _array(self, schema: Mapping[str, object], depth: int) -> shapes.Shape:
        first, rest = schema.get("prefixItems"), schema.get("items")
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems")
        if not isinstance(first, list) or not first:
            return shapes.ListOf(self._shape(rest, depth + 1))
        elements = tuple(self._shape(part, depth + 1) for part in first[:MAX_VALUES])
        stated = schema.get("minItems")
        min_length = max(0, min(stated, len(elements))) if isinstance(stated, int) else len(elements)
        more = self._shape(rest, depth + 1) if isinstance(rest, Mapping) or rest is True else None
        return shapes.TupleOf(elements, min_length, more)


class _Pointer(str):
    """The text of a `$ref`, to distinguish it from a schema that happens to be a string."""

    __slots__ = ()


def _find_compositions(schema: Mapping[str, object]) -> Iterator[list[object]]:
    """Yields the parts that a value must all satisfy, each as a list of alternatives."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield [_Pointer(reference)]
    every = schema.get("allOf")
    yield from ([part] for part in every) if isinstance(every, list) else ()
    for word in ("anyOf", "oneOf"):
        alternatives = schema.get(word)
        if isinstance(alternatives, list):
            yield alternatives


def _combine(one: shapes.Shape, other: shapes.Shape) -> shapes.Shape:
    """Intersects two shapes. Contradicting parts are an error in the schema, and become `Unknown`."""
    both = shapes.intersect(one, other)
    return shapes.UNKNOWN if both == shapes.NEVER and shapes.NEVER not in (one, other) else both


def _path(pointer: str) -> Path | None:
    """The path of a `$ref` inside its own schema; None for a reference to another document."""
    if pointer == "#":
        return ()
    if not pointer.startswith("#/") or len(pointer) > MAX_POINTER_LENGTH:
        return None
    return tuple(unquote(word).replace("~1", "/").replace("~0", "~") for word in pointer[2:].split("/"))


def _literal(value: object) -> shapes.Shape:
    kind = _kind_of(value)
    if isinstance(kind, shapes.Primitive) and isinstance(value, str | int | float) and _is_plain(value):
        return shapes.Literal(kind.kind, value)
    return kind


def _kind_of(value: object) -> shapes.Shape:
    return next((shape for kind, shape in _KINDS if isinstance(value, kind)), shapes.UNKNOWN)


def _is_plain(value: object) -> bool:
    """Whether a scalar means the same in every language and can be written in source code."""
    if isinstance(value, int | float):
        return -_SAFE_INTEGER <= value <= _SAFE_INTEGER
    return value is None or _is_writable(value)


def _is_writable(text: object) -> bool:
    """Whether the value is text that UTF-8 can encode: lone surrogates cannot be part of a source file."""
    return isinstance(text, str) and (text.isascii() or not _SURROGATE.search(text))


def _text(schema: object, word: str) -> str:
    found = schema.get(word) if isinstance(schema, Mapping) else None
    return found if isinstance(found, str) else ""


def _default(schema: object) -> str | None:
    """The default as JSON, if it is short and flat enough for a comment."""
    if not isinstance(schema, Mapping) or "default" not in schema:
        return None
    value = schema["default"]
    if isinstance(value, list | dict | str) and len(value) > MAX_DEFAULT_LENGTH:
        return None
    inner = value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else [value]
    if not all(map(_is_plain, inner)) or sum(len(v) for v in inner if isinstance(v, str)) > MAX_DEFAULT_LENGTH:
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_DEFAULT_LENGTH else None


def _break_cycles(definitions: Mapping[Path, Definition]) -> Mapping[Path, Definition]:
    """Replaces definitions that consist of nothing but each other by `Unknown`: compilers reject such cycles."""
    heads = {
        path: {m.path for m in shapes.members(part.shape) if isinstance(m, shapes.Reference) and m.path in definitions}
        for path, part in definitions.items()
    }
    sorter = TopologicalSorter(heads)
    with suppress(CycleError):  # the sorter then stops before the cycles
        sorter.prepare()
    sound: set[Path] = set()
    while ready := sorter.get_ready():
        sound.update(ready)
        sorter.done(*ready)
    found = {path: part.shape if path in sound else shapes.UNKNOWN for path, part in definitions.items()}
    return {path: Definition(_follow_references(found, path), part.description) for path, part in definitions.items()}


def _follow_references(found: Mapping[Path, shapes.Shape], path: Path) -> shapes.Shape:
    """The shape at the end of a chain of references; compilers reject long chains."""
    shape = found[path]
    while isinstance(shape, shapes.Reference) and isinstance(found.get(shape.path), shapes.Reference):
        shape = found[shape.path]
    return shape
