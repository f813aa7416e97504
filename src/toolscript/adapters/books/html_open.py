"""Which elements of a page are open. Of many the end need not be written, or nobody wrote it: then it is where the next
element begins that cannot stand inside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

LEVELS = {f"h{level}": level for level in range(1, 7)}
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
# What begins a block of its own inside of what flows, and what is around it.
_FLOW = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "center",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "ul",
    ]
) | frozenset(LEVELS)
_CELLS = frozenset(["td", "th", "caption"])
_ROW_GROUPS = frozenset(["tbody", "tfoot", "thead"])
BLOCKS = _FLOW | _CELLS | _ROW_GROUPS | {"tr", "body", "html", "legend"}
_OF_HEAD = frozenset(["base", "head", "html", "link", "meta", "noscript", "script", "style", "template", "title"])
_CONTROLS = frozenset(["button", "select"])
_APART = _CELLS | {"table", "object", "template"}
_LOOSE = frozenset(["address", "div", "p"])

_Rule = tuple[Collection[str], Collection[str]]
"""What ends, and what it does not end beyond."""


def _rules(tag: str) -> list[_Rule]:
    rules: list[_Rule] = []
    if tag not in _OF_HEAD:
        rules.append((("head",), () if tag == "body" else ("noscript", "template")))
    if tag in _FLOW:
        rules.append((("p",), _APART | {"button"}))
    if tag in _FLOW - {"div"}:
        rules.append((_CONTROLS, _APART))
    if tag == "li":
        rules.append((("li",), BLOCKS - _LOOSE - {"li"}))
    if tag in {"dt", "dd"}:
        rules.append((("dt", "dd"), BLOCKS - _LOOSE - {"dt", "dd"}))
    if tag in _CELLS:
        rules.append((_CELLS, ("table",)))
    if tag == "tr":
        rules.append((_CELLS | {"tr"}, ("table",)))
    if tag in _ROW_GROUPS:
        rules.append((_CELLS | _ROW_GROUPS | {"tr"}, ("table",)))
    return rules


_RULES = {tag: _rules(tag) for tag in BLOCKS | _OF_HEAD}
_OTHER = _rules("")


class OpenElements:
    """The elements that are open, outermost first, and where the last of each name is: looking for it among all would
    make nesting a way to keep the reader busy."""

    def __init__(self) -> None:
        self._tags: list[str] = []
        self._places: dict[str, list[int]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._tags)

    @property
    def innermost(self) -> str:
        return self._tags[-1] if self._tags else ""

    def begin(self, tag: str) -> None:
        self._places[tag].append(len(self._tags))
        self._tags.append(tag)

    def end(self) -> str:
        """Ends the innermost element and names it."""
        tag = self._tags.pop()
        self._places[tag].pop()
        return tag

    def place(self, tag: str) -> int:
        """How many elements are around the last one of that name; -1 when none is open."""
        places = self._places.get(tag)
        return places[-1] if places else -1

    def left_by(self, tag: str) -> int:
        """How many elements stay open when one of that name begins."""
        left = len(self._tags)
        for ended, walls in _RULES.get(tag, _OTHER):
            last = [self._places[each][-1] for each in ended if self._places[each]]
            if last:
                wall = max(map(self.place, walls), default=-1)
                left = min([left, *(place for place in last if place > wall)])
        return left
