"""The facts about a catalogue that hybrid search keeps in memory: spelling and frequency of words, names of tools,
subjects of tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from toolscript.domain.agent_skills import name_passage
from toolscript.domain.catalog import Item, ItemType, Schema, Schemas, StoredItem, get_server
from toolscript.domain.search import TermCounts
from toolscript.retrieval.capabilities import NO_SUBJECTS, Capabilities, Subjects, summarize_purpose
from toolscript.retrieval.near_equals import NearEquals, find_successor, is_deprecated
from toolscript.retrieval.text.fuzzy import Names
from toolscript.retrieval.text.item_text import build_passage_texts
from toolscript.retrieval.text.spelling import Spelling, is_english
from toolscript.retrieval.text.words import words

# A name that the texts of more other tools have is a word of the catalogue: redis, grafana.
MAX_OTHER_TEXTS = 2


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """The facts about one item; the same as long as its digest is."""

    digest: str
    content_digest: str
    """The same for items of other servers that differ in nothing else."""
    server: str
    name: str
    type: ItemType
    title: str | None
    description: str
    terms: frozenset[int]
    spelt: frozenset[str]
    subjects: Subjects
    schemas: Schemas
    definition: Schema | None = None
    quarantine: str = ""
    passages: int = 0
    """The number of passages of the text of an agent skill, each of which has a point of its own."""

    def list_points(self, item_id: str) -> list[str]:
        """The ids of the item's points."""
        return [item_id, *(name_passage(item_id, number) for number in range(self.passages))]

    def to_item(self) -> Item:
        """The item that the facts are about."""
        about = self.server, self.name, self.description, self.type, self.title
        return Item(*about, *self.schemas, self.definition, self.quarantine)


def build_facts(stored: StoredItem, digest: str, capabilities: Capabilities) -> ItemFacts:
    item = stored.item
    name, server, description = words(item.name), words(item.server), words(item.description)
    passages = [] if item.quarantine else build_passage_texts(item)
    return ItemFacts(
        digest=digest,
        content_digest=item.content_digest,
        server=item.server,
        name=item.name,
        type=item.type,
        title=item.title,
        description=item.description,
        terms=stored.terms,
        spelt=frozenset({*name, *server, *description, *words(" ".join((*item.parameters, *passages)))}),
        subjects=capabilities.of_tool(name, server, words(summarize_purpose(item.description))),
        schemas=(item.input_schema, item.output_schema, item.annotations),
        definition=item.definition,
        quarantine=item.quarantine,
        passages=len(passages),
    )


class CatalogueFacts:
    """The facts about all active items."""

    def __init__(self, facts: Mapping[str, ItemFacts], capabilities: Capabilities) -> None:
        """Takes the facts about each item by its id."""
        documents_with_term = Counter(chain.from_iterable(each.terms for each in facts.values()))
        spelt: Counter[str] = Counter(dict.fromkeys(capabilities.vocabulary, 0))
        spelt.update(chain.from_iterable(each.spelt for each in facts.values()))
        self.items = facts
        self.names = Names(((item_id, each.name) for item_id, each in facts.items()), self._is_rare)
        self.spelling = Spelling(spelt, (words(each.name) for each in facts.values()))
        self._texts_with_word = spelt
        self._tools_named = Counter("".join(words(each.name)) for each in facts.values())
        self._server_words = frozenset(chain.from_iterable(words(each.server) for each in facts.values()))
        self.subjects: Mapping[str, Subjects] = {
            item_id: each.subjects for item_id, each in facts.items() if each.subjects != NO_SUBJECTS
        }
        self.capable: dict[Subjects, list[str]] = {}
        """The items that have a capability, by their subjects."""
        for item_id, subjects in self.subjects.items():
            if subjects.kinds:
                self.capable.setdefault(subjects, []).append(item_id)
        self._counts = TermCounts(len(facts), documents_with_term)
        self.near_equals = _find_near_equals(facts)
        self.variants = _find_variants(facts)
        """The ids of all items with the same definition, for each item that is not the only one with its own."""
        groups = set(self.variants.values())
        self.distinct = len(facts) - len(self.variants) + len(groups)
        """The number of different definitions."""
        self.max_variants = max(map(len, groups), default=1)
        self.max_points = max((1 + each.passages for each in facts.values()), default=1)
        """The largest number of points of one item."""

    def list_points(self, item_ids: frozenset[str]) -> frozenset[str]:
        """The ids of the points of these items."""
        if self.max_points == 1:
            return item_ids
        return frozenset(p for i in item_ids for p in (self.items[i].list_points(i) if i in self.items else (i,)))

    async def term_counts(self, _: object) -> TermCounts:
        """How many items contain each term."""
        return self._counts

    def fold_variants(
        self, ranked: Sequence[tuple[str, float]], get_origin: Callable[[str], Hashable] = lambda _: None
    ) -> list[tuple[str, float]]:
        """The ranking with one item of each definition and origin, the first."""
        if not self.variants:
            return list(ranked)
        seen: set[tuple[Hashable, ...]] = set()
        folded = []
        for each in ranked:
            group = self.variants.get(each[0])
            key = (group, get_origin(each[0])) if group else None
            if key is None or key not in seen:
                folded.append(each)
            if key is not None:
                seen.add(key)
        return folded

    def list_variants(
        self,
        item_id: str,
        get_position: Callable[[str], int],
        get_origin: Callable[[str], Hashable] = lambda _: None,
    ) -> tuple[str, ...]:
        """The other items with the same definition and origin, by the positions of their servers."""
        group, own = self.variants.get(item_id, ()), get_origin(item_id)
        others = (each for each in group if each != item_id and get_origin(each) == own)
        return tuple(sorted(others, key=lambda each: (get_position(get_server(each)), each)))

    def _is_rare(self, word: str) -> bool:
        """Whether a word is neither English nor common in the catalogue, where it is not the name of a tool."""
        others = self._texts_with_word[word] - self._tools_named[word]
        return others <= MAX_OTHER_TEXTS and word not in self._server_words and not is_english(word)

    def is_mistyped(self, text: str) -> bool:
        """Whether a text has a word that no tool has; a name with a typo does."""
        return not all(map(self.spelling.is_own, words(text)))


def _find_near_equals(facts: Mapping[str, ItemFacts]) -> NearEquals:
    types = {item_id: each.type for item_id, each in facts.items() if each.type is not ItemType.TOOL}
    deprecated = [(item_id, each) for item_id, each in facts.items() if is_deprecated(each.title, each.description)]
    names: dict[str, dict[str, str]] = {each.server: {} for _, each in deprecated}
    for item_id, each in facts.items() if names else ():
        if each.server in names:
            names[each.server].setdefault(each.name, item_id)
    successors = {
        item_id: find_successor(each.description, {n: i for n, i in names[each.server].items() if i != item_id})
        for item_id, each in deprecated
    }
    return NearEquals(types, successors)


def _find_variants(facts: Mapping[str, ItemFacts]) -> dict[str, tuple[str, ...]]:
    by_content: dict[str, list[str]] = {}
    for item_id, each in facts.items():
        by_content.setdefault(each.content_digest, []).append(item_id)
    groups = (tuple(ids) for ids in by_content.values() if len(ids) > 1)
    return {item_id: group for group in groups for item_id in group}
