"""Edits JSON with comments as text: whatever is not edited stays as it is, with its comments, commas and blanks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from toolscript.configuration.jsonc import BLANK, JsoncNode, parse_jsonc

DEFAULT_UNIT = "  "
_LINE_BREAK = r"\r\n|\r|\n"


class TextEdit(NamedTuple):
    """Replaces `text[start:end]`."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """The text with all edits. Edits must not overlap."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def remove_member(text: str, path: tuple[str, ...]) -> str:
    """Removes the member at a path of keys, its comma, and the lines that are blank without them."""
    node = parse_jsonc(text).root.find(*path)
    if node is None or node.parent is None or not isinstance(node.parent.value, dict):
        return text
    siblings = list(node.parent.value.values())
    index, end = siblings.index(node), node.end
    comma = _find_comma(text, end)
    if comma is None and index:  # strict readers accept no comma before the closing brace
        comma = _find_comma(text, siblings[index - 1].end)
    edits = [TextEdit(comma, comma + 1, "")] if comma is not None else []
    if comma == end:
        edits, end = [], end + 1
    return apply_edits(text, [*edits, TextEdit(*_widen_to_lines(text, node.key_start, end), "")])


def add_member(text: str, path: tuple[str, ...], value: str) -> str:
    """Adds a member at the end of the object at `path[:-1]`, and creates the object if there is none. `value` is the
    source of the value, indented as at the beginning of a line. The layout follows the text."""
    *above, name = path
    parent = parse_jsonc(text).root.find(*above)
    if parent is None or not isinstance(parent.value, dict):
        unit = find_indent_unit(text)
        member = f"{unit}{json.dumps(name, ensure_ascii=False)}: {indent_lines(value, unit, chr(10))}"
        source = f"{{\n{member}\n}}"
        return add_member(text, tuple(above), source) if parent is None else set_values(text, {tuple(above): source})
    newline = find_newline(text)
    outer = _find_indent(text, parent.key_start)
    inner = next((i for m in parent.value.values() if (i := _find_indent(text, m.key_start, alone=True))), None)
    inner = inner or outer + find_indent_unit(text)
    close = parent.end - 1
    at = len(text[:close].rstrip())
    before = newline + inner if newline else " " * bool(parent.value)
    after = newline + outer if newline not in text[at:close] else ""
    source = f"{json.dumps(name, ensure_ascii=False)}: {indent_lines(value, inner, newline)}"
    last = max((member.end for member in parent.value.values()), default=None)
    if last is None or _find_comma(text, last) is not None:
        trailing = "" if last is None else ","
        return apply_edits(text, [TextEdit(at, at, before + source + trailing + after)])
    if last == at:
        return apply_edits(text, [TextEdit(at, at, "," + before + source + after)])
    return apply_edits(text, [TextEdit(last, last, ","), TextEdit(at, at, before + source + after)])


def set_values(text: str, sources: Mapping[tuple[str, ...], str]) -> str:
    """Replaces the values at paths of keys by sources, or adds them."""
    root, newline = parse_jsonc(text).root, find_newline(text)
    nodes = {path: root.find(*path) for path in sources}
    text = apply_edits(
        text,
        (
            TextEdit(node.start, node.end, indent_lines(sources[path], _find_indent(text, node.key_start), newline))
            for path, node in nodes.items()
            if node
        ),
    )
    for path in (path for path, node in nodes.items() if not node):
        text = add_member(text, path, sources[path])
    return text


def read_source(text: str, node: JsoncNode) -> str:
    """The source of a value, indented as at the beginning of a line."""
    indent = _find_indent(text, node.key_start)
    first, *rest = re.split(_LINE_BREAK, text[node.start : node.end])
    return "\n".join([first, *(line.removeprefix(indent) for line in rest)])


def format_source(value: Any, unit: str = DEFAULT_UNIT) -> str:
    """The source of a value: an object with a member on each line, everything below them on one line."""
    if not isinstance(value, Mapping) or not value:
        return json.dumps(value, ensure_ascii=False)
    members = (
        f"{unit}{json.dumps(k, ensure_ascii=False)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()
    )
    return "{\n" + ",\n".join(members) + "\n}"


def indent_lines(source: str, indent: str, newline: str) -> str:
    """Indents all lines but the first; joins them where the text has no lines, unless a comment ends with its line."""
    lines = re.split(_LINE_BREAK, source)
    if newline or "//" in source:
        return (newline or "\n").join([lines[0], *(indent + line for line in lines[1:])])
    return " ".join(line.strip() for line in lines)


def find_indent_unit(text: str) -> str:
    """The indentation of the first indented line."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else DEFAULT_UNIT


def find_newline(text: str) -> str:
    """The line break of the text; empty if it has one line."""
    found = re.search(_LINE_BREAK, text.strip())
    return found[0] if found else ""


def _find_comma(text: str, start: int) -> int | None:
    """The position of the comma after blanks and comments, if one follows."""
    found = re.compile(BLANK).match(text, start)
    at = found.end() if found else start
    return at if text[at : at + 1] == "," else None


def _widen_to_lines(text: str, start: int, end: int) -> tuple[int, int]:
    """Takes whole lines if nothing else is on them."""
    before = re.search(r"(?:^|[\r\n])[ \t]*\Z", text[:start])
    after = re.match(r"[ \t]*(?:\r\n|\r|\n)", text[end:])
    if not before or not after:
        return start, end
    return start - len(before[0].lstrip("\r\n")), end + after.end()


def _find_indent(text: str, position: int, *, alone: bool = False) -> str:
    """The indentation of the line at a position; with `alone` only if the line begins there."""
    line = text[max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1 : position]
    indent = line[: len(line) - len(line.lstrip())]
    return "" if alone and line.strip() else indent
