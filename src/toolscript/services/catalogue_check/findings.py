"""Findings about the texts of tools: nothing to search by, nearly the same as another tool, the same as another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from toolscript.domain.catalog import get_server
from toolscript.domain.search import Vector
from toolscript.retrieval.catalogue import CatalogueFacts, ItemFacts
from toolscript.retrieval.projection import find_near_pairs
from toolscript.retrieval.text.words import words
from toolscript.services.tools.tool_map import MAX_PAIRS, MIN_WITHIN_SERVER
from toolscript.services.tools.variants import Variants

# Of 1 361 tools of 81 servers, 23 pairs of one server are as similar (see `MIN_WITHIN_SERVER`).
DEFAULT_SIMILARITY = 0.92
# No cosine is as large: pairs of different servers are left out.
NEVER = 2.0
DIGITS = 3
MAX_EXAMPLES = 3


class FindingKind(StrEnum):
    """What a finding is about."""

    DESCRIPTION = "description"
    SIMILAR = "similar"
    DUPLICATES = "duplicates"
    REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class CatalogueFinding:
    """Something that leads searches astray."""

    kind: FindingKind
    tools: tuple[str, ...]
    text: str
    is_error: bool = False
    """False for what may be intended."""
    similarity: float | None = None
    """The cosine of the two tools of `SIMILAR`."""
    requests: tuple[str, ...] = ()
    """The recorded requests of `REQUESTS`, which the first tool served and find one of the other tools first."""


def find_poor_descriptions(tools: Mapping[str, ItemFacts]) -> Iterator[CatalogueFinding]:
    """The tools whose description is empty or one word."""
    for tool_id, tool in tools.items():
        count = len(words(tool.description))
        # A text in a language without spaces counts as one word.
        if count == 0 or (count == 1 and tool.description.isascii()):
            text = "has a description of one word" if count else "has no description"
            yield CatalogueFinding(FindingKind.DESCRIPTION, (tool_id,), text, is_error=True)


def find_similar_tools(
    tools: Mapping[str, ItemFacts], vectors: Mapping[str, Vector], similarity: float
) -> Iterator[CatalogueFinding]:
    """The pairs of tools of one server with a cosine of `similarity` or more, the most similar first."""
    ids = list(vectors)
    servers = [tools[tool_id].server for tool_id in ids]
    pairs = find_near_pairs(list(vectors.values()), servers, within=similarity, across=NEVER, max_pairs=MAX_PAIRS)
    for one, other, cosine in pairs:
        is_same = cosine >= MIN_WITHIN_SERVER
        text = f"are {'nearly the same' if is_same else 'similar'}: {cosine:.{DIGITS}f}"
        yield CatalogueFinding(FindingKind.SIMILAR, (ids[one], ids[other]), text, is_same, round(cosine, DIGITS))


def find_duplicates(
    tools: Mapping[str, ItemFacts], catalogue: CatalogueFacts, variants: Variants
) -> Iterator[CatalogueFinding]:
    """The tools of equal definition, those of the same servers together."""
    by_servers: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for group, is_folded in variants.list_groups(catalogue):
        visible = [item_id for item_id in group if item_id in tools]
        if len(visible) > 1:
            by_servers.setdefault((is_folded, tuple(map(get_server, visible))), []).extend(visible)
    for (is_folded, servers), ids in by_servers.items():
        count, consequence = len(ids) // len(servers), "searches show one of them"
        if not is_folded:
            consequence = "searches show each of them, because the arguments of the servers differ"
        text = f"{count} of {join_names(servers)} {'is' if count == 1 else 'are'} the same: {consequence}"
        yield CatalogueFinding(FindingKind.DUPLICATES, tuple(ids), text)


def build_requests_finding(tool_id: str, mistaken: Mapping[str, Sequence[str]], total: int) -> CatalogueFinding:
    """A finding about requests that a tool served, of a total number, by the tool that each finds first instead."""
    firsts = sorted(mistaken, key=lambda first: (-len(mistaken[first]), first))
    requests = [request for first in firsts for request in mistaken[first]]
    examples = ", ".join(f'"{request}"' for request in requests[:MAX_EXAMPLES])
    text = f"{len(requests)} of {total} requests that the first tool served find another one first: {examples}"
    is_error = len(requests) > 1 and 2 * len(requests) >= total
    return CatalogueFinding(FindingKind.REQUESTS, (tool_id, *firsts), text, is_error, requests=tuple(requests))


def join_names(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
