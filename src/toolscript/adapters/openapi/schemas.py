"""Turns schemas of a document into JSON Schemas that stand alone, with `$defs` for what they refer to.

Nothing here raises: a part that makes no sense is left out, which allows more than the document does, and the API
judges. The size is bounded: the definitions nearest to the root are kept, and farther ones become `{}`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from toolscript.adapters.openapi.document import ApiDocument, split_pointer

MAX_NODES = 5_000
MAX_DEPTH = 30
MAX_PARTS = 1_000
MAX_EXAMPLE = 200
# Tried in this order when a schema is larger than it may be.
DEPTHS = (MAX_DEPTH, 8, 4, 2, 1, 0)
BASE64 = "The bytes of a file, in base64."

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_NUMBERS = frozenset({"multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"})
_LENGTHS = frozenset({"maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"})
_TEXTS = frozenset({"title", "description", "format", "pattern", "contentEncoding", "contentMediaType"})
_FLAGS = frozenset({"uniqueItems", "deprecated"})
_PARTS = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAPS = frozenset({"properties", "patternProperties"})
# Of an answer: nothing is gained from refusing one that is a character too long.
_OUTPUT_DROPS = _NUMBERS | _LENGTHS | {"pattern", "uniqueItems", "default"}
# What the parts of an `allOf` may have to become one object.
_MERGED = frozenset({"type", "properties", "required", "description", "title", "allOf", "additionalProperties"})
_RULES = _NUMBERS | _LENGTHS | _PARTS | _LISTS | {"enum", "const", "patternProperties", "$ref"}


class SchemaWriter:
    """Writes one schema and the definitions that it needs."""

    def __init__(self, document: ApiDocument, *, is_input: bool, max_characters: int, depth: int = MAX_DEPTH) -> None:
        self._document = document
        self._is_input = is_input
        self._max_characters = max_characters
        self._max_depth = depth
        self._nodes = 0
        self._names: dict[str, str] = {}
        self._waiting: deque[str] = deque()

    def write(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """A schema whose references lead into `$defs`, which `definitions` returns."""
        self._nodes += 1
        if not isinstance(schema, Mapping) or depth > self._max_depth or self._nodes > MAX_NODES:
            return {}
        if isinstance(reference := schema.get("$ref"), str):
            return self._refer(reference, schema)
        parts = _list(schema.get("allOf"))
        if len(parts) == 1 and isinstance(parts[0], Mapping) and not schema.keys() & (_RULES - {"allOf"} | _MAPS):
            about = {key: value for key, value in schema.items() if key not in {"allOf", "type"}}
            return self.write({**parts[0], **about}, depth + 1)
        merged = self.merge(schema) if parts else None
        schema = schema if merged is None else merged
        written: dict[str, Any] = {}
        for key, value in schema.items():
            if not self._is_input and key in _OUTPUT_DROPS:
                continue
            self._copy(written, key, value, depth)
        self._fix(schema, written)
        return _allow_null(written) if self._is_nullable(schema) else written

    def definitions(self, used: int) -> dict[str, Any]:
        """The definitions that what was written refers to, the nearest first, as far as there is room."""
        written: dict[str, Any] = {}
        while self._waiting:
            reference = self._waiting.popleft()
            name = self._names[reference]
            self._nodes = 0
            known = len(self._names)
            part = self.write(self._document.find(reference, reference)) if used < self._max_characters else {}
            size = len(json.dumps(part))
            if used + size > self._max_characters:
                for added in list(self._names)[known:]:
                    del self._names[added]
                    self._waiting.pop()
                used, part, size = self._max_characters, {"description": "Any value: its schema is too large."}, 0
            written[name] = part
            used += size
        return written

    def merge(self, schema: Mapping[str, Any], seen: frozenset[int] = frozenset()) -> dict[str, Any] | None:
        """One object with the properties of all parts of `allOf`; None where the parts are more than that."""
        if id(schema) in seen or len(seen) > MAX_DEPTH:
            return {}
        parts = [self._document.follow(part, "/allOf") for part in _list(schema.get("allOf"))[:MAX_PARTS]]
        own = {key: value for key, value in schema.items() if key != "allOf"}
        merged: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
        for part in [*parts, own]:
            if not isinstance(part, Mapping):
                continue
            plain = self.merge(part, seen | {id(schema)}) if "allOf" in part else part
            if plain is None or plain.keys() & _RULES - _MERGED or plain.get("type", "object") != "object":
                return None
            merged["properties"] |= _map(plain.get("properties"))
            merged["required"] += [name for name in _list(plain.get("required")) if name not in merged["required"]]
            merged |= {key: plain[key] for key in ("title", "description") if key in plain}
            if isinstance(plain.get("additionalProperties"), Mapping):
                merged["additionalProperties"] = plain["additionalProperties"]
        kept = {key: own[key] for key in own if key not in merged}
        return {**kept, **{key: value for key, value in merged.items() if value or key == "type"}}

    def _refer(self, reference: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        if not reference.startswith("#"):
            self._document.find(reference, reference)
            return {}
        if reference not in self._names:
            words = split_pointer(reference) or ["root"]
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", words[-1]).strip("_") or "part"
            taken = set(self._names.values())
            self._names[reference] = name if name not in taken else f"{name}_{len(taken)}"
            self._waiting.append(reference)
        description = schema.get("description")
        about = {"description": description} if isinstance(description, str) else {}
        written = {"$ref": f"#/$defs/{self._names[reference]}", **about}
        return _allow_null(written) if self._is_nullable(schema) else written

    def _copy(self, written: dict[str, Any], key: str, value: Any, depth: int) -> None:
        if key == "type":
            stated = value if isinstance(value, list) else [value]
            names = [each for each in stated if isinstance(each, str) and each in _TYPES]
            if names:
                written[key] = names[0] if len(names) == 1 else names
        elif (
            (key in _NUMBERS and _is_number(value))
            or (key in _LENGTHS and isinstance(value, int) and not isinstance(value, bool) and value >= 0)
            or (key in _TEXTS and isinstance(value, str) and (key != "pattern" or _is_pattern(value)))
            or (key in _FLAGS and value is True)
            or (key in {"const", "default"} and _is_scalar(value))
        ):
            written[key] = value
        elif key == "enum" and isinstance(value, list) and value and all(map(_is_scalar, value)):
            written[key] = value[:MAX_PARTS]
        elif key in _PARTS and isinstance(value, bool):
            written[key] = value
        elif key in _PARTS and isinstance(value, Mapping):
            written[key] = self.write(value, depth + 1)
        elif key in _LISTS and isinstance(value, list) and value:
            written[key] = [self.write(each, depth + 1) for each in value[:MAX_PARTS]]
        elif key in _MAPS and isinstance(value, Mapping):
            hidden = "readOnly" if self._is_input else "writeOnly"
            shown = {name: each for name, each in value.items() if not self._is_hidden(each, hidden)}
            written[key] = {name: self.write(each, depth + 1) for name, each in shown.items()}

    def _is_hidden(self, schema: Any, flag: str) -> bool:
        target = self._document.follow(schema, "/properties") if isinstance(schema, Mapping) else None
        return isinstance(target, Mapping) and target.get(flag) is True

    def _fix(self, schema: Mapping[str, Any], written: dict[str, Any]) -> None:
        """What older versions write in another way."""
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if schema.get(exclusive) is True and bound in written:
                written[exclusive] = written.pop(bound)
        hidden = _map(schema.get("properties")).keys() - written.get("properties", {}).keys()
        stated = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        if required := [name for name in stated if name not in hidden]:
            written["required"] = list(dict.fromkeys(required))[:MAX_PARTS]
        example = schema.get("example")
        if _is_scalar(example) and example is not None and len(str(example)) <= MAX_EXAMPLE and self._is_input:
            written["examples"] = [example]
        if schema.get("type") == "file" or (schema.get("type") == "string" and schema.get("format") == "binary"):
            written["type"] = "string"
            written.pop("format", None)
            if self._is_input:
                text = written.get("description")
                written |= {"contentEncoding": "base64", "description": f"{text} ({BASE64})" if text else BASE64}

    def _is_nullable(self, schema: Mapping[str, Any]) -> bool:
        return schema.get("nullable") is True or schema.get("x-nullable") is True


def write_object(
    document: ApiDocument,
    properties: Mapping[str, Any],
    required: Iterable[str],
    *,
    is_input: bool,
    max_characters: int,
) -> dict[str, Any]:
    """The schema of an object with these properties, of at most about that many characters."""
    written: dict[str, Any] = {}
    for depth in DEPTHS:
        writer = SchemaWriter(document, is_input=is_input, max_characters=max_characters, depth=depth)
        written = {"type": "object", "properties": {name: writer.write(each) for name, each in properties.items()}}
        written |= {"required": list(required)} if required else {}
        used = len(json.dumps(written))
        if used <= max_characters:
            break
    definitions = writer.definitions(used)
    return {**written, "$defs": definitions} if definitions else written


def _allow_null(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema.get("type"), str) and not schema.keys() & (_LISTS | {"$ref", "const"}):
        values = {"enum": [*schema["enum"], None]} if None not in schema.get("enum", [None]) else {}
        return {**schema, "type": [schema["type"], "null"], **values}
    if not schema.keys() & {"$ref", "enum", "const", "type", *_LISTS}:
        return schema
    about: dict[str, Any] = {key: schema.pop(key) for key in ("title", "description") if key in schema}
    return {"anyOf": [schema, {"type": "null"}], **about}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_pattern(text: str) -> bool:
    """Whether Python reads the pattern: many are for other languages, and validators refuse the whole schema then."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | None)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
