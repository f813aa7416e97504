"""Markdown, by way of its own parser: headings, code and tables are where the grammar says they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from toolscript.adapters.books.html import read_page
from toolscript.adapters.books.parts import Draft, Heading, Part, names, passage, prose, table, without_title
from toolscript.domain.knowledge import BlockKind

_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FIELD = re.compile(r"(\w+):\s*(.*)")
_LONGEST_FRONT = 20_000
# The parser goes one call deeper for each level; what is deeper than this, it leaves out.
DEEPEST = 100


def read_markdown(text: str) -> Draft:
    """A text, with the title and authors of its front matter."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    front = _FRONT.match(text[:_LONGEST_FRONT])
    said = _fields(front[1]) if front else {}
    parser = MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable("table")
    tokens = parser.parse(text[front.end() :] if front else text)
    title = " ".join(said.get("title", []))
    authors = [name for each in said.get("author", []) + said.get("authors", []) for name in names(each)]
    return without_title(Draft(list(_Reading().parts(tokens)), title, tuple(dict.fromkeys(authors))))


def _fields(front: str) -> dict[str, list[str]]:
    """The fields of front matter: a value on the line, a list in brackets, or a list on the lines below."""
    fields: dict[str, list[str]] = {}
    current: list[str] = []
    for line in front.split("\n"):
        if found := _FIELD.match(line):
            current = fields.setdefault(found[1].lower(), [])
            current.extend(_unquoted(each) for each in _items(found[2]))
        elif line.lstrip().startswith("- "):
            current.append(_unquoted(line.lstrip()[2:].removeprefix("name:")))
    return fields


def _items(value: str) -> list[str]:
    value = value.strip()
    listed = value.startswith("[") and value.endswith("]")
    return [each for each in (value[1:-1].split(",") if listed else [value]) if each.strip()]


def _unquoted(value: str) -> str:
    return value.strip().strip("\"'")


class _Reading:
    """Goes through the tokens of a text and knows in which list, table or heading it is."""

    def __init__(self) -> None:
        self._lists: list[int | None] = []
        self._lead = ""
        self._rows: list[list[str]] | None = None
        self._level = 0

    def parts(self, tokens: Sequence[Token]) -> Iterator[Part]:
        for token in tokens:
            match token.type:
                case "inline":
                    yield from self._say(_inline(token))
                case "fence" | "code_block":
                    yield from passage(token.content, BlockKind.CODE)
                case "html_block":
                    yield from read_page(token.content).parts
                case "table_close":
                    yield from table(self._rows or [])
                    self._rows = None
                case _:
                    self._move(token)

    def _say(self, text: str) -> list[Part]:
        if self._rows is not None:
            self._rows[-1].append(text)
            return []
        if self._level:
            return [Heading(prose(text), self._level)]
        lead, self._lead = self._lead, ""
        return list[Part](passage(lead + text))

    def _move(self, token: Token) -> None:
        match token.type:
            case "heading_open":
                self._level = int(token.tag[1])
            case "heading_close":
                self._level = 0
            case "table_open":
                self._rows = []
            case "tr_open" if self._rows is not None:
                self._rows.append([])
            case "bullet_list_open":
                self._lists.append(None)
            case "ordered_list_open":
                start = token.attrGet("start")
                self._lists.append(1 if start is None else int(start))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._lead, self._lists[-1] = _bullet(self._lists[-1])


def _bullet(count: int | None) -> tuple[str, int | None]:
    return ("- ", None) if count is None else (f"{count}. ", count + 1)


def _inline(token: Token) -> str:
    """What a line says, without its marks."""
    said = []
    for child in token.children or []:
        if child.type in {"text", "code_inline", "image"}:
            said.append(child.content)
        elif child.type in {"softbreak", "hardbreak"}:
            said.append("\n")
    return "".join(said)
