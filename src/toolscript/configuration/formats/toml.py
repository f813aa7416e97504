"""TOML, as Codex has it: a table for each server. Servers in one inline table cannot be edited."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toolscript.configuration.formats.file_format import KeyPath, build_node
from toolscript.configuration.jsonc import JsoncDocument, JsoncError, JsoncNode

_TOKEN = (
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'|#[^\n]*|[\[\]{}=\n]|"
    r"[^\[\]{}=\n\"'#]+"
)
_PLAIN_KEY = r"[A-Za-z0-9_-]+"
_PLACE = r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)"


class _Statement(NamedTuple):
    """The lines of a table's header, or of a key with its value. `path` are the keys from the root."""

    start: int
    end: int
    path: KeyPath


class TomlFormat:
    """Edits of whole statements."""

    def parse(self, text: str) -> JsoncDocument:
        return JsoncDocument(build_node(_load(text)), [])

    def read_entry(self, text: str, node: JsoncNode) -> str:  # noqa: ARG002  (other formats need the text)
        return json.dumps(node.to_python(), ensure_ascii=False)

    def remove(self, text: str, path: KeyPath) -> str:
        for start, end in reversed(_find_blocks(text, path)):
            before, after = text[:start], text[end:]
            blank = re.match(r"(?:[ \t]*\r?\n)*", after)
            is_at_blank = not before.strip() or re.search(r"\n[ \t]*\r?\n\Z", before)
            text = before + (after[blank.end() :] if blank and is_at_blank else after)
        return text

    def add(self, text: str, path: KeyPath, value: Mapping[str, Any]) -> str:
        newline = "\r\n" if "\r\n" in text else "\n"
        lines = [f"[{'.'.join(map(_format_key, path))}]"]
        lines += [f"{_format_key(key)} = {_format_value(each)}" for key, each in value.items()]
        head = text if not text or text.endswith("\n") else text + newline
        gap = newline if head.strip() and not re.search(r"\n[ \t]*\r?\n\Z", head) else ""
        return head + gap + "".join(f"{line}{newline}" for line in lines)

    def restore(self, text: str, before: str, paths: Sequence[KeyPath]) -> str:
        for path in paths:
            text = self.remove(text, path)
            blocks = "".join(before[start:end] for start, end in _find_blocks(before, path))
            text = f"{text.rstrip()}\n\n{blocks}" if blocks and text.strip() else text + blocks
        return text


def _load(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(_PLACE, str(error))
        line, column = (
            (int(place["line"]), int(place["column"])) if place and place["line"] else (text.count("\n") + 1, 1)
        )
        message = re.sub(_PLACE, "", str(error))
        raise JsoncError(f"{message[:1].lower()}{message[1:]}", line, column, "") from error


def _find_blocks(text: str, path: KeyPath) -> list[tuple[int, int]]:
    """Where the statements of a table are; those with nothing but comments between them are one block."""
    blocks: list[tuple[int, int]] = []
    was_inside = False
    for statement in _read_statements(text):
        is_inside = statement.path[: len(path)] == path
        if is_inside and was_inside:
            blocks[-1] = (blocks[-1][0], statement.end)
        elif is_inside:
            blocks.append((statement.start, statement.end))
        was_inside = is_inside
    return blocks


def _read_statements(text: str) -> list[_Statement]:
    """The statements of a valid text."""
    _load(text)
    statements: list[_Statement] = []
    section: KeyPath = ()
    start, depth, equals = 0, 0, None
    for token in re.finditer(_TOKEN, text, re.DOTALL):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if token[0] == "=" and not depth and equals is None:
            equals = token.start()
        if token.end() < len(text) and (token[0] != "\n" or depth):
            continue
        source = text[start : token.end()]
        if equals is not None:
            statements.append(_Statement(start, token.end(), section + _find_keys(f"{text[start:equals]}= 0")))
        elif source.lstrip().startswith("["):
            section = _find_keys(source)
            statements.append(_Statement(start, token.end(), section))
        start, equals = token.end(), None
    return statements


def _find_keys(source: str) -> KeyPath:
    """The keys of a header, or of a single value."""
    value: Any = tomllib.loads(source)
    keys: list[str] = []
    while value and isinstance(value, dict | list):
        key = next(iter(value))
        if isinstance(value, dict):
            keys.append(key)
            value = value[key]
        else:
            value = key
    return tuple(keys)


def _format_key(key: str) -> str:
    return key if re.fullmatch(_PLAIN_KEY, key) else json.dumps(key, ensure_ascii=False)


def _format_value(value: Any) -> str:
    if isinstance(value, Mapping):
        members = ", ".join(f"{_format_key(key)} = {_format_value(each)}" for key, each in value.items())
        return f"{{ {members} }}" if members else "{}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
