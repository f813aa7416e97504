"""Parses Markdown with markdown-it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.markup.html import read_page
from toolscript.adapters.files.parts import (
    Heading,
    ParsedBook,
    Part,
    clean_prose,
    extract_title,
    make_block,
    make_table,
    split_authors,
)
from toolscript.domain.knowledge import BlockKind

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FIELD = re.compile(r"(\w+):\s*(.*)")
_MAX_FRONT_MATTER = 20_000
# The parser recurses once per level and leaves out what is nested deeper.
MAX_NESTING = 100


def read_markdown(text: str) -> ParsedBook:
    """Parses a text, with the title, authors and date of its front matter."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    front = _FRONT_MATTER.match(text[:_MAX_FRONT_MATTER])
    fields = _parse_fields(front[1]) if front else {}
    parts = read_markdown_parts(text[front.end() :] if front else text)
    title = " ".join(fields.get("title", []))
    authors = [name for each in fields.get("author", []) + fields.get("authors", []) for name in split_authors(each)]
    date = find_date(" ".join(fields.get("date", [])))
    return extract_title(ParsedBook(parts, title, tuple(dict.fromkeys(authors)), date))


def read_markdown_parts(text: str) -> list[Part]:
    """Parses a text without front matter."""
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).enable("table")
    return list(_MarkdownWalker().parts(parser.parse(text)))


def _parse_fields(front: str) -> dict[str, list[str]]:
    """Parses front matter: a value on the line, a list in brackets, or a list on the lines below."""
    fields: dict[str, list[str]] = {}
    current: list[str] = []
    for line in front.split("\n"):
        if found := _FIELD.match(line):
            current = fields.setdefault(found[1].lower(), [])
            current.extend(_unquote(each) for each in _split_items(found[2]))
        elif line.lstrip().startswith("- "):
            current.append(_unquote(line.lstrip()[2:].removeprefix("name:")))
    return fields


def _split_items(value: str) -> list[str]:
    value = value.strip()
    listed = value.startswith("[") and value.endswith("]")
    return [each for each in (value[1:-1].split(",") if listed else [value]) if each.strip()]


def _unquote(value: str) -> str:
    return value.strip().strip("\"'")


class _MarkdownWalker:
    """Walks through the tokens and tracks the open list, table and heading."""

    def __init__(self) -> None:
        self._lists: list[int | None] = []
        self._lead = ""
        self._rows: list[list[str]] | None = None
        self._level = 0

    def parts(self, tokens: Sequence[Token]) -> Iterator[Part]:
        for token in tokens:
            match token.type:
                case "inline":
                    yield from self._add_text(_plain_text(token))
                case "fence" | "code_block":
                    yield from make_block(token.content, BlockKind.CODE)
                case "html_block":
                    yield from read_page(token.content).parts
                case "table_close":
                    yield from make_table(self._rows or [])
                    self._rows = None
                case _:
                    self._update_state(token)

    def _add_text(self, text: str) -> list[Part]:
        if self._rows is not None:
            self._rows[-1].append(text)
            return []
        if self._level:
            return [Heading(clean_prose(text), self._level)]
        lead, self._lead = self._lead, ""
        return list[Part](make_block(lead + text))

    def _update_state(self, token: Token) -> None:
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
                count = self._lists[-1]
                self._lead, self._lists[-1] = ("- ", None) if count is None else (f"{count}. ", count + 1)


def _plain_text(token: Token) -> str:
    """Returns the text of an inline token without markup."""
    texts = []
    for child in token.children or []:
        if child.type in {"text", "code_inline", "image"}:
            texts.append(child.content)
        elif child.type in {"softbreak", "hardbreak"}:
            texts.append("\n")
    return "".join(texts)
