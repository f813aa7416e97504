"""JSON as people write it into configuration files: with comments, trailing commas and a byte order mark, and with
the place of everything, because `json` forgets where a value stood and a good error names its line."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

Value = dict[str, "Node"] | list["Node"] | str | int | float | bool | None

DEEPEST = 100
# Patterns as texts: `re` compiles each when it is first used, and the command line, which must start at once,
# seldom uses any.
_LINE_BREAK = r"\r\n|\r|\n"
_BLANK = r"(?:[ \t\r\n]+|//[^\r\n]*|/\*(?s:.*?)\*/)*"
_BEGINS_BLANK = frozenset(" \t\r\n/")
_TEXT = r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*'
_LITERAL = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null"
_HALF_A_CHARACTER = "[\ud800-\udfff]"
_PLAIN_KEY = r"[\w-]+"
_LONGEST_KEY = 64


class JsoncError(ValueError):
    """The text is not JSON: what was expected, where (line and column count from 1), and inside which key."""

    def __init__(self, message: str, line: int, column: int, key: str) -> None:
        super().__init__(message)
        self.message, self.line, self.column, self.key = message, line, column, key


@dataclass(slots=True, eq=False)
class Node:
    """A value and its place. The line is that of its key or, in a list, its own. Of a number, true or false `written`
    is what stands in the file, so that 3.10 can become the text 3.10."""

    line: int
    name: str | int = ""
    parent: Node | None = None
    value: Value = None
    written: str = ""

    @property
    def key(self) -> str:
        """The way here from the root, such as `mcpServers.github.args[1]`."""
        if self.parent is None:
            return ""
        if isinstance(self.name, int):
            return f"{self.parent.key}[{self.name}]"
        if not re.fullmatch(_PLAIN_KEY, self.name) or len(self.name) > _LONGEST_KEY:
            shown = self.name if len(self.name) <= _LONGEST_KEY else f"{self.name[:_LONGEST_KEY]}…"
            return f"{self.parent.key}[{json.dumps(shown, ensure_ascii=False)}]"
        return f"{self.parent.key}.{self.name}".removeprefix(".")


class Repeated(NamedTuple):
    """A key that stands twice in one object; which of the two was meant is not for us to guess."""

    first: Node
    line: int


class Document(NamedTuple):
    """What a file says."""

    root: Node
    repeated: list[Repeated]


def read(text: str) -> Document:
    """Reads a JSON text, with comments and trailing commas if it has any. Raises JsoncError."""
    return _Reader(text.removeprefix("\ufeff")).document()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = [0, *(found.end() for found in re.finditer(_LINE_BREAK, text))]
        self._repeated: list[Repeated] = []
        self._inside: list[Node] = []
        self._blank, self._quoted_text, self._other_literal = map(re.compile, (_BLANK, _TEXT, _LITERAL))

    def document(self) -> Document:
        root = Node(1)
        self._fill(root)
        if self._next():
            self._expected("the end of the file")
        return Document(root, self._repeated)

    def _fill(self, node: Node) -> None:
        """Reads the value that comes next into the node."""
        match self._next():
            case "{":
                self._enter(node)
                self._object(node)
                self._inside.pop()
            case "[":
                self._enter(node)
                self._list(node)
                self._inside.pop()
            case '"':
                node.value = self._quoted()
            case _:
                self._literal(node)

    def _enter(self, node: Node) -> None:
        if len(self._inside) == DEEPEST:
            self._fail(f"nested more than {DEEPEST} deep")
        self._inside.append(node)
        self._at += 1

    def _object(self, node: Node) -> None:
        members: dict[str, Node] = {}
        node.value = members
        while not self._took("}"):
            if self._next() != '"':
                self._expected('a key in double quotes or "}"')
            line = self._place()[0]
            name = self._quoted()
            if name in members:
                self._repeated.append(Repeated(members[name], line))
            if not self._took(":"):
                self._expected('":"')
            members[name] = member = Node(line, name, node)
            self._fill(member)
            if not self._took(",") and self._next() != "}":
                self._expected('"," or "}"')

    def _list(self, node: Node) -> None:
        elements: list[Node] = []
        node.value = elements
        while not self._took("]"):
            self._next()
            element = Node(self._place()[0], len(elements), node)
            elements.append(element)
            self._fill(element)
            if not self._took(",") and self._next() != "]":
                self._expected('"," or "]"')

    def _quoted(self) -> str:
        start = self._at
        found = self._quoted_text.match(self._text, start)
        end = found.end() if found else start
        stopped_by = self._text[end : end + 1]
        if stopped_by in {"", "\n", "\r"}:
            self._fail("the text that begins here has no closing quote")
        self._at = end
        if stopped_by == "\\":
            self._fail(r"this backslash begins nothing that JSON knows: a backslash in a text is written \\")
        if stopped_by != '"':
            self._fail(rf"this character must be written \u{ord(stopped_by):04x} in a text")
        value = str(json.loads(self._text[start : end + 1]))
        if re.search(_HALF_A_CHARACTER, value):
            self._at = start
            self._fail("this text has half a surrogate pair, which is no character")
        self._at = end + 1
        return value

    def _literal(self, node: Node) -> None:
        found = self._other_literal.match(self._text, self._at)
        if not found:
            self._expected("a value")
        node.written = found[0]
        try:
            node.value = json.loads(found[0])
        except ValueError:  # Python reads no number of more than 4300 digits
            self._fail("this number is too long")
        self._at = found.end()

    def _took(self, char: str) -> bool:
        if self._next() != char:
            return False
        self._at += 1
        return True

    def _next(self) -> str:
        """The next character that means something; "" at the end."""
        char = self._text[self._at : self._at + 1]
        if char not in _BEGINS_BLANK:
            return char
        blank = self._blank.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        if self._text.startswith("/*", self._at):
            self._fail("the comment that begins here is not closed")
        return self._text[self._at : self._at + 1]

    def _place(self) -> tuple[int, int]:
        line = bisect_right(self._lines, self._at)
        return line, self._at - self._lines[line - 1] + 1

    def _expected(self, what: str) -> NoReturn:
        found = self._text[self._at : self._at + 1]
        self._fail(f"expected {what}, found {repr(found) if found else 'the end of the file'}")

    def _fail(self, message: str) -> NoReturn:
        raise JsoncError(message, *self._place(), self._inside[-1].key if self._inside else "")
