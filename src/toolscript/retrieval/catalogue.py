"""The facts about a catalogue that hybrid search keeps in memory: spelling and frequency of words, names of tools,
subjects of tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from toolscript.domain.catalog import Item, ItemType, Schema, Schemas, StoredItem
from toolscript.domain.search import TermCounts
from toolscript.retrieval.capabilities import NO_SUBJECTS, Capabilities, Subjects
from toolscript.retrieval.text.fuzzy import Names
from toolscript.retrieval.text.spelling import Spelling
from toolscript.retrieval.text.words import words


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """The facts about one item; the same as long as its digest is."""

    digest: str
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

    def to_item(self) -> Item:
        """The item that the facts are about."""
        return Item(self.server, self.name, self.description, self.type, self.title, *self.schemas, self.definition)


def build_facts(stored: StoredItem, digest: str, capabilities: Capabilities) -> ItemFacts:
    """Builds the facts about an item with that digest."""
    item = stored.item
    name, server, description = words(item.name), words(item.server), words(item.description)
    return ItemFacts(
        digest=digest,
        server=item.server,
        name=item.name,
        type=item.type,
        title=item.title,
        description=item.description,
        terms=stored.terms,
        spelt=frozenset({*name, *server, *description, *words(" ".join(item.parameters))}),
        subjects=capabilities.of_tool(name, server, description),
        schemas=(item.input_schema, item.output_schema, item.annotations),
        definition=item.definition,
    )


class CatalogueFacts:
    """The facts about all active items."""

    def __init__(self, facts: Mapping[str, ItemFacts], capabilities: Capabilities) -> None:
        """Takes the facts about each item by its id."""
        documents_with_term = Counter(chain.from_iterable(each.terms for each in facts.values()))
        spelt: Counter[str] = Counter(dict.fromkeys(capabilities.vocabulary, 0))
        spelt.update(chain.from_iterable(each.spelt for each in facts.values()))
        self.items = facts
        self.names = Names((item_id, each.name) for item_id, each in facts.items())
        self.spelling = Spelling(spelt)
        self.subjects: Mapping[str, Subjects] = {
            item_id: each.subjects for item_id, each in facts.items() if each.subjects != NO_SUBJECTS
        }
        self._counts = TermCounts(len(facts), documents_with_term)

    async def term_counts(self, _: object) -> TermCounts:
        """How many items contain each term."""
        return self._counts

    def is_mistyped(self, text: str) -> bool:
        """Whether a text has a word that no tool has; a name with a typo does."""
        return not all(map(self.spelling.is_own, words(text)))
