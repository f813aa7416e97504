"""A tool's signature in one line, for models that read search results.

A line has at most `MAX_LENGTH` characters. Nested objects and long unions are written in as much detail as fits;
the arguments keep their detail longer than the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from toolscript.codegen import shapes
from toolscript.codegen.names import format_typescript_key, quote_typescript, split_comment_lines, to_identifier
from toolscript.codegen.schemas import Definition, Path, SchemaShape, get_label, read_arguments, read_schema
from toolscript.domain.catalog import Item

MAX_LENGTH = 300
_MAX_PARAMETERS = MAX_LENGTH // 4
# A line shows at most 300 of them, and a search formats up to 20 lines before it can answer.
_MAX_SHAPES = 1_000
_MAX_NAME_LENGTH = 64
_MAX_VALUE_LENGTH = 32
_MORE = "…"


@dataclass(frozen=True, slots=True)
class _Detail:
    """Limits on what is written out: levels of nested objects, properties of each, alternatives of a union."""

    levels: int
    fields: int
    alternatives: int


_DETAILS = (
    _Detail(3, 12, 12),
    _Detail(2, 8, 8),
    _Detail(1, 6, 6),
    _Detail(1, 3, 4),
    _Detail(0, 0, 3),
    _Detail(0, 0, 1),
)


def format_signature(item: Item, call: str = "") -> str:
    """Returns `read_file(path: string, head?: number) -> {content: string}`, in at most `MAX_LENGTH` characters.

    Required parameters come first, and `…` marks omitted parts. A tool without an output schema has no arrow. With a
    `call` it is written as in a program: `tools.disk.read_file({path: string, head?: number})`.
    """
    name = call or _shorten(" ".join(split_comment_lines(item.name)), _MAX_NAME_LENGTH)
    left, right = ("({", "})") if call else ("(", ")")
    arguments = read_arguments(item.input_schema, _MAX_SHAPES)
    results = list(_results(item.output_schema))
    for detail in _DETAILS:
        parameters = _parameters(arguments, detail)
        for result in results:
            line = f"{name}{left}{', '.join(parameters)}{right}{result}"
            if len(line) <= MAX_LENGTH:
                return line
    while parameters and len(line) > MAX_LENGTH:
        parameters.pop()
        line = f"{name}{left}{', '.join([*parameters, _MORE])}{right}{result}"
    return _shorten(line, MAX_LENGTH)


def _results(schema: object) -> Iterator[str]:
    """Yields the arrow and the result type in less and less detail."""
    if schema is None:
        yield ""
        return
    result = read_schema(schema, _MAX_SHAPES)
    for detail in _DETAILS:
        yield f" -> {_SignatureWriter(result.definitions, detail).write_type(result.root, detail.levels)}"


def _parameters(arguments: SchemaShape, detail: _Detail) -> list[str]:
    """One text per parameter. With alternative sets of parameters: the parameters of all sets, required if all sets
    require them."""
    records = [record for record in shapes.members(arguments.root) if isinstance(record, shapes.Record)]
    found = {field.name: field for record in records for field in record.fields}
    required = set[str].intersection(*({field.name for field in r.fields if field.required} for r in records))
    writer = _SignatureWriter(arguments.definitions, detail)
    ordered = sorted(found.values(), key=lambda field: field.name not in required)
    texts = [
        writer.write_field(f, required=f.name in required, levels=detail.levels) for f in ordered[:_MAX_PARAMETERS]
    ]
    return texts if len(ordered) <= _MAX_PARAMETERS else [*texts, _MORE]


class _SignatureWriter:
    """Writes shapes in one line of TypeScript; after as many shapes as a line has characters it writes `…`."""

    def __init__(self, definitions: Mapping[Path, Definition], detail: _Detail) -> None:
        self._definitions = definitions
        self._detail = detail
        self._left = MAX_LENGTH

    def write_field(self, field: shapes.Field, *, required: bool, levels: int) -> str:
        name = _shorten(format_typescript_key(field.name), _MAX_NAME_LENGTH)
        return f"{name}{'' if required else '?'}: {self.write_type(field.shape, levels)}"

    def write_type(self, shape: shapes.Shape, levels: int) -> str:
        self._left -= 1
        match shape:
            case _ if self._left < 0:
                return _MORE
            case shapes.Literal(value=str(value)):
                return quote_typescript(_shorten(value, _MAX_VALUE_LENGTH))
            case shapes.Literal(value=value):
                return str(value).lower()
            case shapes.Primitive(kind):
                return "number" if kind is shapes.Kind.INTEGER else kind.value
            case shapes.Reference(path):
                return self._definition(path, levels)
            case shapes.ListOf(element):
                inner = self.write_type(element, levels)
                return f"({inner})[]" if "|" in inner and isinstance(element, shapes.Union) else f"{inner}[]"
            case shapes.TupleOf(elements):
                texts = (self.write_type(e, levels) for e in elements)
                return f"[{', '.join(self._first(texts, self._detail.alternatives))}]"
            case shapes.Union(alternatives):
                written = dict.fromkeys(self.write_type(a, levels) for a in alternatives)
                return "|".join(self._first(written, self._detail.alternatives))
            case shapes.Record():
                return self._record(shape, levels)
            case _:
                return "unknown" if shape == shapes.UNKNOWN else "never"

    def _definition(self, path: Path, levels: int) -> str:
        if levels > 0 and path in self._definitions:
            return self.write_type(self._definitions[path].shape, levels - 1)
        return _shorten(to_identifier(get_label(path)), _MAX_NAME_LENGTH) if path else "object"

    def _record(self, record: shapes.Record, levels: int) -> str:
        if not record.fields:
            return "object" if record.extra is None else f"{{[key]: {self.write_type(record.extra, levels)}}}"
        if levels <= 0:
            return f"{{{_MORE}}}"
        ordered = sorted(record.fields, key=lambda field: not field.required)
        fields = (self.write_field(field, required=field.required, levels=levels - 1) for field in ordered)
        return f"{{{', '.join(self._first(fields, self._detail.fields))}}}"

    @staticmethod
    def _first(texts: Iterable[str], limit: int) -> list[str]:
        every = list(texts)
        return every if len(every) <= limit else [*every[:limit], _MORE]


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + _MORE
