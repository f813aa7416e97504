"""How a tool is called from a generated client, as a line to copy."""

from __future__ import annotations

import json

from toolscript.codegen.names import camel
from toolscript.codegen.schemas import read_arguments
from toolscript.codegen.shapes import Kind, ListOf, Literal, Primitive, Record, Shape, TupleOf, members
from toolscript.codegen.texts import script_key, script_string
from toolscript.domain.catalog import Item

_SAMPLES = {
    Kind.STRING: '"…"',
    Kind.NUMBER: "1",
    Kind.INTEGER: "1",
    Kind.BOOLEAN: "true",
    Kind.NULL: "null",
}


def format_typescript_call(item: Item) -> str:
    """`const result = await tools.filesystem.read_file({ path: "…" });`, with what the tool requires."""
    key = script_key(item.name)
    access = f".{key}" if not key.startswith('"') else f"[{key}]"
    records = [record for record in members(read_arguments(item.input_schema).root) if isinstance(record, Record)]
    required = [field for record in records[:1] for field in record.fields if field.required]
    given = ", ".join(f"{script_key(field.name)}: {_sample(field.shape)}" for field in required)
    return f"const result = await tools.{camel(item.server)}{access}({f'{{ {given} }}' if given else ''});"


def _sample(shape: Shape) -> str:
    first = next(iter(members(shape)), None)
    match first:
        case Literal(kind, value):
            return script_string(str(value)) if kind is Kind.STRING else json.dumps(value)
        case Primitive(kind):
            return _SAMPLES[kind]
        case ListOf() | TupleOf():
            return "[]"
        case _:
            return "{}"
