"""Parses JSON with comments, trailing commas and a byte order mark, as people write it in configuration files.

Every value keeps its line for error messages: the standard `json` module does not provide lines."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

Value = dict[str, "JsoncNode"] | list["JsoncNode"] | str | int | float | bool | None

MAX_DEPTH = 100
# Patterns are strings: `re` compiles each at its first use, not when the command line starts.
_LINE_BREAK = r"\r\n|\r|\n"
BLANK = r"(?:[ \t\r\n]+|//[^\r\n]*|/\*(?s:.*?)\*/)*"
_BEGINS_BLANK = frozenset(" \t\r\n/")
_STRING = r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*'
_LITERAL = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null"
_LONE_SURROGATE = "[\ud800-\udfff]"
_PLAIN_KEY = r"[\w-]+"
_MAX_KEY_LENGTH = 64


class JsoncError(ValueError):
    """The text is not valid JSON. Line and column start at 1; `key` is the innermost key around the error."""

    def __init__(self, message: str, line: int, column: int, key: str) -> None:
        super().__init__(message)
        self.message, self.line, self.column, self.key = message, line, column, key


@dataclass(slots=True, eq=False)
class JsoncNode:
    """A value with its position. `line` is the line of its key or, in a list, of the value. `literal` is the source
    text of a number or boolean, so that 3.10 can become the string "3.10". `text[start:end]` is the value, and its key
    begins at `key_start`, in the text without byte order mark."""

    line: int
    name: str | int = ""
    parent: JsoncNode | None = None
    value: Value = None
    literal: str = ""
    key_start: int = 0
    start: int = 0
    end: int = 0

    @property
    def key(self) -> str:
        """The path from the root, such as `mcpServers.github.args[1]`."""
        if self.parent is None:
            return ""
        if isinstance(self.name, int):
            return f"{self.parent.key}[{self.name}]"
        if not re.fullmatch(_PLAIN_KEY, self.name) or len(self.name) > _MAX_KEY_LENGTH:
            name = self.name if len(self.name) <= _MAX_KEY_LENGTH else f"{self.name[:_MAX_KEY_LENGTH]}…"
            return f"{self.parent.key}[{json.dumps(name, ensure_ascii=False)}]"
        return f"{self.parent.key}.{self.name}".removeprefix(".")

    def find(self, *names: str) -> JsoncNode | None:
        """The value at a path of keys below this one; None if there is none."""
        found: JsoncNode | None = self
        for name in names:
            found = found.value.get(name) if found and isinstance(found.value, dict) else None
        return found

    def to_python(self) -> Any:
        """The value as `json.loads` would return it."""
        if isinstance(self.value, dict):
            return {name: member.to_python() for name, member in self.value.items()}
        if isinstance(self.value, list):
            return [element.to_python() for element in self.value]
        return self.value


class JsoncDocument(NamedTuple):
    """The parsed content of a file. A key that occurs twice in one object is repeated: its first node, and the line of
    the second."""

    root: JsoncNode
    repeated: list[tuple[JsoncNode, int]]


def parse_jsonc(text: str) -> JsoncDocument:
    """Parses JSON that may have comments and trailing commas. Raises JsoncError."""
    return _JsoncParser(text.removeprefix("\ufeff")).parse()


class _JsoncParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = [0, *(found.end() for found in re.finditer(_LINE_BREAK, text))]
        self._repeated: list[tuple[JsoncNode, int]] = []
        self._inside: list[JsoncNode] = []
        self._blank_pattern, self._string_pattern, self._literal_pattern = map(re.compile, (BLANK, _STRING, _LITERAL))

    def parse(self) -> JsoncDocument:
        root = JsoncNode(1)
        self._parse_value(root)
        if self._next():
            self._fail_expecting("the end of the file")
        return JsoncDocument(root, self._repeated)

    def _parse_value(self, node: JsoncNode) -> None:
        opening = self._next()
        node.start = self._at
        match opening:
            case "{" | "[":
                if len(self._inside) == MAX_DEPTH:
                    self._fail(f"nested more than {MAX_DEPTH} deep")
                self._inside.append(node)
                self._at += 1
                if opening == "{":
                    self._parse_object(node)
                else:
                    self._parse_list(node)
                self._inside.pop()
            case '"':
                node.value = self._parse_string()
            case _:
                self._parse_literal(node)
        node.end = self._at

    def _parse_object(self, node: JsoncNode) -> None:
        members: dict[str, JsoncNode] = {}
        node.value = members
        while not self._take("}"):
            if self._next() != '"':
                self._fail_expecting('a key in double quotes or "}"')
            line, key_start = self._position()[0], self._at
            name = self._parse_string()
            if name in members:
                self._repeated.append((members[name], line))
            if not self._take(":"):
                self._fail_expecting('":"')
            members[name] = member = JsoncNode(line, name, node, key_start=key_start)
            self._parse_value(member)
            if not self._take(",") and self._next() != "}":
                self._fail_expecting('"," or "}"')

    def _parse_list(self, node: JsoncNode) -> None:
        elements: list[JsoncNode] = []
        node.value = elements
        while not self._take("]"):
            self._next()
            element = JsoncNode(self._position()[0], len(elements), node)
            elements.append(element)
            self._parse_value(element)
            if not self._take(",") and self._next() != "]":
                self._fail_expecting('"," or "]"')

    def _parse_string(self) -> str:
        start = self._at
        found = self._string_pattern.match(self._text, start)
        end = found.end() if found else start
        stopped_by = self._text[end : end + 1]
        if stopped_by in {"", "\n", "\r"}:
            self._fail("this string has no closing quote")
        self._at = end
        if stopped_by == "\\":
            self._fail(r"invalid escape sequence: write a backslash as \\")
        if stopped_by != '"':
            self._fail(rf"control character in a string: write it as \u{ord(stopped_by):04x}")
        value = str(json.loads(self._text[start : end + 1]))
        if re.search(_LONE_SURROGATE, value):
            self._at = start
            self._fail("this string contains half a surrogate pair")
        self._at = end + 1
        return value

    def _parse_literal(self, node: JsoncNode) -> None:
        found = self._literal_pattern.match(self._text, self._at)
        if not found:
            self._fail_expecting("a value")
        node.literal = found[0]
        try:
            node.value = json.loads(found[0])
        except ValueError:  # Python parses at most 4300 digits
            self._fail("this number is too long")
        self._at = found.end()

    def _take(self, char: str) -> bool:
        if self._next() != char:
            return False
        self._at += 1
        return True

    def _next(self) -> str:
        """The next character after blanks and comments; "" at the end."""
        char = self._text[self._at : self._at + 1]
        if char not in _BEGINS_BLANK:
            return char
        blank = self._blank_pattern.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        if self._text.startswith("/*", self._at):
            self._fail("this comment is not closed")
        return self._text[self._at : self._at + 1]

    def _position(self) -> tuple[int, int]:
        line = bisect_right(self._lines, self._at)
        return line, self._at - self._lines[line - 1] + 1

    def _fail_expecting(self, what: str) -> NoReturn:
        found = self._text[self._at : self._at + 1]
        self._fail(f"expected {what}, found {repr(found) if found else 'the end of the file'}")

    def _fail(self, message: str) -> NoReturn:
        raise JsoncError(message, *self._position(), self._inside[-1].key if self._inside else "")
