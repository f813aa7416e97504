"""What every search needs to know of the whole catalogue, kept in memory so that none has to ask the store: how words
are spelt and how common they are, what tools are called, what they are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from toolscript.domain.catalog import ItemType, StoredItem
from toolscript.domain.search import TermCounts
from toolscript.retrieval.capabilities import Capabilities, Subjects
from toolscript.retrieval.text.fuzzy import Names
from toolscript.retrieval.text.spelling import Spelling
from toolscript.retrieval.text.words import words


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to know of one item; the same as long as its digest is."""

    digest: str
    server: str
    name: str
    type: ItemType
    description: str
    terms: frozenset[int]
    spelt: frozenset[str]
    subjects: Subjects


def build_facts(stored: StoredItem, digest: str, capabilities: Capabilities) -> Facts:
    """Reads an item that has that digest."""
    item = stored.item
    name, server, description = words(item.name), words(item.server), words(item.description)
    return Facts(
        digest=digest,
        server=item.server,
        name=item.name,
        type=item.type,
        description=item.description,
        terms=stored.terms,
        spelt=frozenset({*name, *server, *description, *words(" ".join(item.parameters))}),
        subjects=capabilities.of_tool(name, server, description),
    )


class Catalogue:
    """A picture of the active items, as they were when it was taken."""

    def __init__(self, facts: Mapping[str, Facts], capabilities: Capabilities) -> None:
        """Takes what is known of each item by its id."""
        holding: Counter[int] = Counter()
        spelt: Counter[str] = Counter(dict.fromkeys(capabilities.vocabulary, 0))
        for each in facts.values():
            holding.update(each.terms)
            spelt.update(each.spelt)
        self.facts = facts
        self.names = Names((item_id, each.name) for item_id, each in facts.items())
        self.spelling = Spelling(spelt)
        self.subjects: Mapping[str, Subjects] = {item_id: each.subjects for item_id, each in facts.items()}
        self._counts = TermCounts(len(facts), holding)

    async def term_counts(self, _: object) -> TermCounts:
        """How many items hold each term: all terms, since they are at hand."""
        return self._counts

    def is_mistyped(self, text: str) -> bool:
        """Whether a text has a word that no tool has, as a name with a typo would."""
        return not all(map(self.spelling.is_own, words(text)))
