"""Tracks the open elements of a page. Many end tags are optional or missing: such an element ends where an element
begins that cannot be inside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

LEVELS = {f"h{level}": level for level in range(1, 7)}
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
# Elements that begin a block of text.
_FLOW = frozenset(
    (
        "address article aside blockquote center dd details div dl dt fieldset figcaption figure footer form header hr "
        "li main nav ol p pre section summary table ul"
    ).split()
) | frozenset(LEVELS)
_CELLS = frozenset("td th caption".split())
_ROW_GROUPS = frozenset("tbody tfoot thead".split())
BLOCKS = _FLOW | _CELLS | _ROW_GROUPS | {"tr", "body", "html", "legend"}
_HEAD_TAGS = frozenset("base head html link meta noscript script style template title".split())
_CONTROLS = frozenset("button select".split())
_ISOLATING = _CELLS | {"table", "object", "template"}
_TRANSPARENT = frozenset("address div p".split())

# Tags that begin, tags of open elements that they close, and tags that stop the search for those.
_CLOSING_RULES: tuple[tuple[Collection[str], Collection[str], Collection[str]], ...] = (
    (_FLOW, {"p"}, _ISOLATING | {"button"}),
    (_FLOW - {"div"}, _CONTROLS, _ISOLATING),
    ({"li"}, {"li"}, BLOCKS - _TRANSPARENT - {"li"}),
    ({"dt", "dd"}, {"dt", "dd"}, BLOCKS - _TRANSPARENT - {"dt", "dd"}),
    (_CELLS, _CELLS, {"table"}),
    ({"tr"}, _CELLS | {"tr"}, {"table"}),
    (_ROW_GROUPS, _CELLS | _ROW_GROUPS | {"tr"}, {"table"}),
)
_DEFAULT_RULES = [({"head"}, {"noscript", "template"})]
_RULES = {
    tag: [
        *([] if tag in _HEAD_TAGS else [({"head"}, set())] if tag == "body" else _DEFAULT_RULES),
        *((closed, barriers) for tags, closed, barriers in _CLOSING_RULES if tag in tags),
    ]
    for tag in BLOCKS | _HEAD_TAGS
}


class OpenElements:
    """The open elements, outermost first, with the positions of each tag: a linear search would make deep nesting
    quadratic."""

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
        """Closes the innermost element and returns its tag."""
        tag = self._tags.pop()
        self._places[tag].pop()
        return tag

    def place(self, tag: str) -> int:
        """Returns the depth of the last open element with that tag; -1 if none is open."""
        places = self._places.get(tag)
        return places[-1] if places else -1

    def count_left_open(self, tag: str) -> int:
        """Returns how many elements stay open when one with that tag begins."""
        left = len(self._tags)
        for closed, barriers in _RULES.get(tag, _DEFAULT_RULES):
            last = [self._places[each][-1] for each in closed if self._places[each]]
            if last:
                barrier = max(map(self.place, barriers), default=-1)
                left = min([left, *(place for place in last if place > barrier)])
        return left
