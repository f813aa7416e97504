"""A tool in one line, for a model that reads search results: what to pass, and what comes back.

A line has a budget, and is written as fully as fits: nested objects and long unions are spelled out or not, those of
the arguments for longer than those of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from toolscript.codegen.names import bare
from toolscript.codegen.schemas import Definition, Path, Reading, label, read_arguments, read_schema
from toolscript.codegen.shapes import (
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
    Union,
    members,
)
from toolscript.codegen.texts import comment_lines, script_key, script_string
from toolscript.domain.catalog import Item

LONGEST = 300
_MOST_PARAMETERS = LONGEST // 4
_LONGEST_NAME = 64
_LONGEST_VALUE = 32
_MORE = "…"


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much is spelled out: levels of nested objects, properties of each, alternatives of a union."""

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


def format_signature(item: Item) -> str:
    """`read_file(path: string, head?: number) -> {content: string}`, in at most `LONGEST` characters.

    Required parameters come first; what was left out is marked with `…`. A tool that does not say what it answers
    has no arrow.
    """
    name = _shortened(" ".join(comment_lines(item.name)), _LONGEST_NAME)
    arguments = read_arguments(item.input_schema)
    results = list(_results(item.output_schema))
    for detail in _DETAILS:
        parameters = _parameters(arguments, detail)
        for result in results:
            line = f"{name}({', '.join(parameters)}){result}"
            if len(line) <= LONGEST:
                return line
    while parameters and len(line) > LONGEST:
        parameters.pop()
        line = f"{name}({', '.join([*parameters, _MORE])}){result}"
    return _shortened(line, LONGEST)


def _results(schema: object) -> Iterator[str]:
    """What a call answers, in less and less detail. The arguments have the first claim on the line."""
    if schema is None:
        yield ""
        return
    answer = read_schema(schema)
    for detail in _DETAILS:
        yield f" -> {_Line(answer.definitions, detail).type(answer.root, detail.levels)}"


def _parameters(arguments: Reading, detail: _Detail) -> list[str]:
    """One text a parameter; of alternative sets of them, the parameters of all, required where all require them."""
    records = [record for record in members(arguments.root) if isinstance(record, Record)]
    found = {field.name: field for record in records for field in record.fields}
    required = set[str].intersection(*({field.name for field in r.fields if field.required} for r in records))
    line = _Line(arguments.definitions, detail)
    ordered = sorted(found.values(), key=lambda field: field.name not in required)
    shown = [line.field(f, required=f.name in required, levels=detail.levels) for f in ordered[:_MOST_PARAMETERS]]
    return shown if len(ordered) <= _MOST_PARAMETERS else [*shown, _MORE]


class _Line:
    """Writes shapes in one line, in the words of TypeScript; it stops when there are more than a line can hold."""

    def __init__(self, definitions: Mapping[Path, Definition], detail: _Detail) -> None:
        self._definitions = definitions
        self._detail = detail
        self._left = LONGEST

    def field(self, field: Field, *, required: bool, levels: int) -> str:
        name = _shortened(script_key(field.name), _LONGEST_NAME)
        return f"{name}{'' if required else '?'}: {self.type(field.shape, levels)}"

    def type(self, shape: Shape, levels: int) -> str:
        self._left -= 1
        match shape:
            case _ if self._left < 0:
                return _MORE
            case Literal(value=str(value)):
                return script_string(_shortened(value, _LONGEST_VALUE))
            case Literal(value=value):
                return str(value).lower()
            case Primitive(kind):
                return "number" if kind is Kind.INTEGER else kind.value
            case Reference(path):
                return self._definition(path, levels)
            case ListOf(element):
                inner = self.type(element, levels)
                return f"({inner})[]" if "|" in inner and isinstance(element, Union) else f"{inner}[]"
            case TupleOf(elements):
                return f"[{', '.join(self._some((self.type(e, levels) for e in elements), self._detail.alternatives))}]"
            case Union(alternatives):
                written = dict.fromkeys(self.type(a, levels) for a in alternatives)
                return "|".join(self._some(written, self._detail.alternatives))
            case Record():
                return self._record(shape, levels)
            case _:
                return "unknown" if shape == UNKNOWN else "never"

    def _definition(self, path: Path, levels: int) -> str:
        if levels > 0 and path in self._definitions:
            return self.type(self._definitions[path].shape, levels - 1)
        return _shortened(bare(label(path)), _LONGEST_NAME) if path else "object"

    def _record(self, record: Record, levels: int) -> str:
        if not record.fields:
            return "object" if record.extra is None else f"{{[key]: {self.type(record.extra, levels)}}}"
        if levels <= 0:
            return f"{{{_MORE}}}"
        ordered = sorted(record.fields, key=lambda field: not field.required)
        fields = (self.field(field, required=field.required, levels=levels - 1) for field in ordered)
        return f"{{{', '.join(self._some(fields, self._detail.fields))}}}"

    @staticmethod
    def _some(texts: Iterable[str], most: int) -> list[str]:
        every = list(texts)
        return every if len(every) <= most else [*every[:most], _MORE]


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + _MORE
