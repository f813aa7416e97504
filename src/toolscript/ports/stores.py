"""The stores that hold the truth: the catalogue, documents, knowledge."""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolscript.domain.catalog import (
    Assignment,
    ClassificationRecord,
    Item,
    ItemFingerprint,
    Schemas,
    Skill,
    SkillMember,
    StoredItem,
    Suggestion,
    SuggestionStatus,
)
from toolscript.domain.documents import Document, StoredDocument
from toolscript.domain.knowledge import Chunk, Extraction, KnowledgeRecords, Source
from toolscript.domain.search import TermCounts

# Names or ids; None means all.
Those = Several[str] | None


class CatalogStore(Protocol):
    """The truth about items and skills. Every write is one transaction."""

    async def save_items(self, items: Sequence[tuple[Item, frozenset[int]]]) -> None:
        """Adds or replaces items (by id) with the terms they hold, and makes them active."""

    async def deactivate(self, item_ids: Sequence[str]) -> None:
        """Marks items as vanished: kept, no longer active, out of the term counts."""

    async def items(self, item_ids: Sequence[str] | None = None, *, active_only: bool = True) -> list[StoredItem]:
        """Items by id order: those named, or all."""

    async def schemas(self, item_ids: Sequence[str]) -> dict[str, Schemas]:
        """The schemas of the active ones among those items, and nothing else of them."""

    async def schemas_after(self, item_id: str, limit: int) -> dict[str, Schemas]:
        """Those of the active items that come next in the order of their ids."""

    async def marks(self, servers: Those = None, *, item_ids: Those = None) -> list[ItemFingerprint]:
        """What there is to compare of items, inactive ones too, by id order: of those servers, with those ids."""

    async def term_counts(self, terms: Sequence[int]) -> TermCounts:
        """Counts over the active items."""

    async def size_of_definitions(self) -> int:
        """How many characters the names, descriptions and schemas of all active items have."""

    async def add_skill(self, skill: Skill) -> None:
        """Adds a skill. Raises Conflict when there is one of that id."""

    async def save_skills(self, skills: Sequence[Skill]) -> None:
        """Adds or replaces skills: none is a seed's any more, and items of inactive ones count as not classified."""

    async def seed_skills(self, digest: str, skills: Sequence[Skill]) -> bool:
        """Unless that digest was the last to be seeded: adds or replaces these skills, takes back those of earlier
        seeds that are not among them, and returns that it did. What people have saved stays as it is, and what they
        have removed stays away. What is taken back goes as with `delete_skill`; where people have put items into it,
        it becomes inactive instead, until a seed names it again."""

    async def delete_skill(self, skill_id: str) -> None:
        """Removes the skill by a person's word, and every assignment to it. Items that were in it count as not
        classified; of the skills that are left to one, the surest is primary if that one was. Raises NotFound."""

    async def skills(self, *, active_only: bool = True) -> list[Skill]: ...

    async def items_in(self, skill_id: str) -> list[StoredItem]:
        """The active items of a skill, surest first, then by id."""

    async def members(self, skill_ids: Those = None) -> dict[str, list[SkillMember]]:
        """The active items of those skills (of all), by id order; skills without any are left out."""

    async def tool_counts(self) -> dict[str, int]:
        """How many active items each skill has; skills without any are left out."""

    async def classify(self, decisions: Sequence[ClassificationRecord], *, over_people: bool = False) -> None:
        """Replaces the items' assignments, stamps and pending suggestions by what was decided. Items and skills that
        are gone meanwhile are left out; an item that was to go into such a skill counts as not classified. What a
        person has assigned stays, unless told otherwise; what a person has rejected for an item is not suggested for
        it again under the same name; what is pending under the same name stays, with its number."""

    async def stamp(self, stamps: Mapping[str, tuple[str, str]]) -> None:
        """Replaces the stamps of items (id to the old and the new one) that still have the old one, nothing else."""

    async def assign(self, item_id: str, assignments: Sequence[Assignment]) -> None:
        """Replaces the item's assignments by a person's and takes back what is suggested for it; with none, the item
        counts as not classified. Raises NotFound for an unknown item or skill."""

    async def suggest(self, suggestion: Suggestion) -> Suggestion:
        """Queues a suggested skill for a person and returns it with its number."""

    async def suggestions(self, status: SuggestionStatus | None = None) -> list[Suggestion]: ...

    async def review(
        self, number: int, status: SuggestionStatus, reviewed_by: str | None = None, *, into: Skill | str | None = None
    ) -> Suggestion:
        """Records a person's decision about a pending suggestion; with `into`, its item goes into that skill, or into
        a new one, which is added. Raises NotFound for what is unknown, Conflict for one not pending or an id taken."""

    async def ping(self) -> None:
        """Raises Unavailable when the store does not answer."""

    async def close(self) -> None: ...


class DocumentStore(Protocol):
    """The truth about documents, one tenant at a time. Every write is one transaction, and leaves the documents that
    it touched waiting until the index is told to be up to date: what a crash interrupts can be found and finished."""

    async def save_documents(self, tenant: str, documents: Sequence[StoredDocument]) -> None: ...

    async def delete_documents(self, tenant: str, ids: Sequence[str]) -> int:
        """Removes documents and their terms from the tenant's counts; returns how many there were."""

    async def mark(self, tenant: str, ids: Sequence[str]) -> None:
        """Leaves documents waiting that are about to be indexed without having been saved before."""

    async def settle(self, tenant: str, digests: Mapping[str, str | None]) -> None:
        """The index holds these documents as they were with these digests (None: no longer). Those that have not
        changed since then no longer wait for what this process has written, nor for one that is long gone; for what
        another process is still at they do."""

    async def waiting(self) -> dict[str, list[str]]:
        """The ids that wait for the index, saved or deleted, by tenant."""

    async def tenants(self) -> list[str]:
        """Every tenant that has documents."""

    async def documents(self, tenant: str, ids: Sequence[str] | None = None) -> list[Document]:
        """Documents by id order: those named, or all."""

    async def listing(self, tenant: str, *, after: str | None = None, limit: int) -> list[Document]:
        """Documents by id order (of code points), from the first one after that id."""

    async def ids(self, tenant: str, *, after: str | None = None, limit: int) -> list[str]:
        """The ids of what `listing` returns."""

    async def count(self, tenant: str) -> int: ...

    async def digests(self, tenant: str, ids: Sequence[str]) -> dict[str, str]:
        """The digests of the named documents that exist, by id."""

    async def term_counts(self, tenant: str, terms: Sequence[int]) -> TermCounts: ...

    async def ping(self) -> None:
        """Raises Unavailable when the store does not answer."""


class KnowledgeReader(Protocol):
    """Sources, chunks and extractions, to be read and nothing else: all that searching needs."""

    async def shelf(
        self, source_ids: Several[str], chunk_ids: Several[str], extraction_ids: Several[str]
    ) -> KnowledgeRecords:
        """Those of the named that exist, in one batched read."""

    async def sources(self) -> list[Source]:
        """All sources, by title, then id."""

    async def contents(self, source_id: str) -> tuple[list[Chunk], list[Extraction]]:
        """All chunks of a source in reading order, and all extractions by id; none of a source that is not there."""

    async def counts(self) -> dict[str, tuple[int, int]]:
        """How many chunks and extractions each source has, by its id."""

    async def ping(self) -> None:
        """Raises Unavailable when the store does not answer."""

    async def close(self) -> None: ...


class KnowledgeStore(KnowledgeReader, Protocol):
    """The truth about knowledge, for the pipeline that writes it."""

    async def replace(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> None:
        """Makes the source be as given and have exactly these chunks, in this order, and these extractions. What a
        crash interrupts leaves the old, the new, or, where the store knows no transactions, some of both with the
        source's status not ready; doing it again completes it."""

    async def add_extractions(self, source_id: str, extractions: Sequence[Extraction]) -> None:
        """Adds or replaces extractions by id. Raises NotFound when there is no such source."""

    async def set_status(self, source_id: str, status: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Changes the status, the metadata where some are given, and nothing else; of no source that is not there."""

    async def remove(self, source_id: str) -> bool:
        """Removes a source with all its chunks and extractions; whether it was there."""
