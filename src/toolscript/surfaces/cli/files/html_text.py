"""The text of an HTML page. Tolerant, as pages are: nothing in one is an error."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_DROPPED = frozenset({"script", "style", "template", "svg", "noscript", "iframe", "object"})
_INLINE = frozenset({"a", "abbr", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i"})
_INLINE |= {"img", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup"}
_INLINE |= {"time", "tt", "u", "var", "wbr"}


class PageReader(HTMLParser):
    """Gathers what a reader of the page would see."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._said: list[str] = []
        self._titles: dict[str, list[str]] = {}
        self._in: str | None = None
        self._dropping: list[str] = []

    @property
    def title(self) -> str:
        """The page's title, else its first heading; empty where there is neither."""
        return next((t for tag in ("title", "h1", "h2") if (t := _flat("".join(self._titles.get(tag, ()))))), "")

    @property
    def text(self) -> str:
        """The text, a block a line."""
        return "\n".join(filter(None, map(_flat, "".join(self._said).split("\n"))))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag in _DROPPED:
            self._dropping.append(tag)
        elif tag in {"title", "h1", "h2"} and tag not in self._titles and not self._dropping:
            self._titles[tag] = []
            self._in = tag
        if tag not in _INLINE:
            self._said.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag not in _INLINE:
            self._said.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._dropping:
            while self._dropping.pop() != tag:
                pass
        if tag == self._in:
            self._in = None
        if tag not in _INLINE:
            self._said.append("\n")

    def handle_data(self, data: str) -> None:
        if self._dropping:
            return
        if self._in:
            self._titles[self._in].append(data)
        if self._in != "title":
            self._said.append(re.sub(r"\s+", " ", data))


def _flat(text: str) -> str:
    return " ".join(text.split())
