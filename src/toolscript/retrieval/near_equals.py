"""Orders candidates of about the same confidence: by what was learnt from use, tools before prompts and resources, and
what is deprecated behind its successor. Changes no confidence."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from toolscript.domain.catalog import ItemType, get_server
from toolscript.retrieval.confidence import UNNAMED

# Confidences that differ by less say nothing about which of two candidates is better.
NEAR = 0.03
DIGITS = 4

# "DEPRECATED: use read_text_file instead", "[Deprecated]", "This tool is deprecated"; not "Lists deprecated flags".
_DEPRECATED = re.compile(
    r"(?:^|[.!?:;\n(\[*])[\s*_\W]{0,4}deprecated\b\s*(?:$|[\])*_:.,;!–—-]|in\s+favou?r\b|use\b|since\b)"
    r"|\bthis\s+(?:tool|function|prompt|resource|method)\s+(?:is|was|has\s+been)\s+deprecated\b",
    re.IGNORECASE,
)
_SUCCESSOR = re.compile(
    r"\b(?:use|using|prefer|favou?r\s+of|(?:replaced|superseded)\s+by|migrate\s+to|see)\s+(?:the\s+)?[`'\"*]*([\w.-]*\w)",
    re.IGNORECASE,
)


def is_deprecated(title: str | None, description: str) -> bool:
    """Whether an item's texts say that it is deprecated."""
    return bool(_DEPRECATED.search(description) or _DEPRECATED.search(title or ""))


def find_successor(description: str, names: Mapping[str, str]) -> str | None:
    """The value of the first of these names that a deprecated item's description tells to use instead."""
    mark = _DEPRECATED.search(description)
    mentions = _SUCCESSOR.finditer(description, mark.start() if mark else 0)
    return next((names[mention[1]] for mention in mentions if mention[1] in names), None)


@dataclass(frozen=True, slots=True)
class NearEquals:
    """What is known of the items of a catalogue that decides among near equals."""

    types: Mapping[str, ItemType] = field(default_factory=dict)
    """The type of each item that is not a tool."""
    deprecated: Mapping[str, str | None] = field(default_factory=dict)
    """The successor of each deprecated item, if its description names one."""

    def order(
        self,
        ranked: Sequence[tuple[str, float]],
        named: Collection[str] = (),
        moves: Mapping[str, float] = MappingProxyType({}),
    ) -> list[tuple[str, float]]:
        """The ranking with near equals in order. `moves` says how far use moves items, in confidence. Items that the
        query names stay where they are."""
        if not moves and self.types.keys().isdisjoint(i for i, _ in ranked):
            ordered = list(ranked)
        else:
            ordered = sorted(ranked, key=lambda pair: self._build_key(pair, named, moves))
        for item_id in [i for i, _ in ordered if i in self.deprecated and i not in named]:
            self._move_behind_successor(item_id, ordered)
        return ordered

    def _build_key(
        self, pair: tuple[str, float], named: Collection[str], moves: Mapping[str, float]
    ) -> tuple[float, bool]:
        item_id, score = pair
        is_other = item_id in self.types
        if item_id not in named:
            score = min(UNNAMED, score + moves.get(item_id, 0.0)) - NEAR * is_other
        return -round(score, DIGITS), is_other

    def _move_behind_successor(self, item_id: str, ordered: list[tuple[str, float]]) -> None:
        place = next(n for n, (i, _) in enumerate(ordered) if i == item_id)
        deprecated_tool, successor = ordered[place], self.deprecated[item_id]
        if successor is not None:
            later = next((n for n in range(place + 1, len(ordered)) if ordered[n][0] == successor), None)
            if later is not None:
                ordered.insert(place, ordered.pop(later))
            return
        # The last one of its server that is about as sure.
        lowest, server = round(deprecated_tool[1] - NEAR, DIGITS), get_server(item_id)
        for n in range(len(ordered) - 1, place, -1):
            other, score = ordered[n]
            if score >= lowest and get_server(other) == server and other not in self.deprecated:
                ordered.insert(n, ordered.pop(place))
                return
