"""A line of TypeScript that calls a tool through the generated client, for people to copy."""

from __future__ import annotations

import json

from toolscript.codegen.names import to_camel_case
from toolscript.codegen.schemas import read_arguments
from toolscript.codegen.shapes import Kind, ListOf, Literal, Primitive, Record, Shape, TupleOf, members
from toolscript.codegen.texts import format_typescript_key, quote_typescript
from toolscript.domain.catalog import Item

_SAMPLES = {Kind.STRING: '"…"', Kind.NUMBER: "1", Kind.INTEGER: "1", Kind.BOOLEAN: "true", Kind.NULL: "null"}


def format_typescript_call(item: Item) -> str:
    """Returns `const result = await tools.filesystem.read_file({ path: "…" });`, with the required arguments."""
    key = format_typescript_key(item.name)
    access = f".{key}" if not key.startswith('"') else f"[{key}]"
    records = [record for record in members(read_arguments(item.input_schema).root) if isinstance(record, Record)]
    required = [field for record in records[:1] for field in record.fields if field.required]
    arguments = ", ".join(f"{format_typescript_key(field.name)}: {_sample(field.shape)}" for field in required)
    return (
        f"const result = await tools.{to_camel_case(item.server)}{access}({f'{{ {arguments} }}' if arguments else ''});"
    )


def _sample(shape: Shape) -> str:
    first = next(iter(members(shape)), None)
    match first:
        case Literal(kind, value):
            return quote_typescript(str(value)) if kind is Kind.STRING else json.dumps(value)
        case Primitive(kind):
            return _SAMPLES[kind]
        case ListOf() | TupleOf():
            return "[]"
        case _:
            return "{}"
