"""The stores: items and skills of the catalogue, documents, knowledge. Indexes can be rebuilt from them."""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Mapping, Sequence
from datetime import datetime
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
from toolscript.domain.feedback import Step, Verdict
from toolscript.domain.knowledge import Chunk, Extraction, KnowledgeRecords, Source
from toolscript.domain.quarantine import Pin
from toolscript.domain.search import TermCounts, Vector

Ids = Several[str] | None
"""Names or ids; None means all."""


class ItemStore(Protocol):
    """The items of the catalogue. Every write is one transaction.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.items import SqlItems
    >>> async def save_and_read():
    ...     store = SqlItems(Database("sqlite://"))
    ...     await store.save_items([(Item("files", "read", "Reads a file"), frozenset({1, 2}))])
    ...     items, counts = await store.get_items(), await store.count_terms([2, 3])
    ...     await store.close()
    ...     return [stored.item.id for stored in items], counts.documents_with_term
    >>> asyncio.run(save_and_read())
    (['files__read'], {2: 1})
    """

    async def save_items(self, items: Sequence[tuple[Item, frozenset[int]]]) -> None:
        """Adds or replaces items (by id) with the terms they contain, and makes them active."""

    async def deactivate(self, item_ids: Sequence[str]) -> None:
        """Marks items as vanished: they stay stored, but are inactive and no longer in the term counts."""

    async def get_items(self, item_ids: Sequence[str] | None = None, *, active_only: bool = True) -> list[StoredItem]:
        """The items with these ids (None: all), ordered by id."""

    async def get_items_of_skill(self, skill_id: str) -> list[StoredItem]:
        """The active items of a skill, ordered by falling confidence, then id."""

    async def get_schemas(self, item_ids: Sequence[str]) -> dict[str, Schemas]:
        """The schemas of the active items among these, by id."""

    async def get_fingerprints(self, servers: Ids = None, *, item_ids: Ids = None) -> list[ItemFingerprint]:
        """What a sync compares of each item, active or not, ordered by id: of these servers and with these ids."""

    async def set_servers(
        self, configuration: str, servers: Several[str], *, only: bool, now: float, max_age: float
    ) -> frozenset[str]:
        """Records that this configuration names exactly these servers; with `only`, that there is no other one. Forgets
        servers that were not recorded for `max_age` seconds. Returns all servers that any configuration names."""

    async def list_configurations(self) -> dict[str, frozenset[str]]:
        """The servers of each recorded configuration."""

    async def forget_configuration(self, configuration: str) -> frozenset[str]:
        """Removes the record of a configuration. Returns all servers that any other one names."""

    async def count_terms(self, terms: Sequence[int]) -> TermCounts:
        """How many active items contain each term."""

    async def count_definition_characters(self) -> int:
        """The total length of the names, descriptions and schemas of all active items."""

    async def ping(self) -> None:
        """Raises Unavailable when the store does not answer."""

    async def close(self) -> None: ...


class CatalogueVersion(Protocol):
    """A number in the store that every write to items and skills increases, in its own transaction. Processes that
    share the store compare it to find out that another one has changed the catalogue.

    >>> import asyncio
    >>> from toolscript.adapters.sql.catalogue_version import SqlCatalogueVersion
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.items import SqlItems
    >>> async def compare():
    ...     database = Database("sqlite://")
    ...     version = SqlCatalogueVersion(database)
    ...     before = await version.read()
    ...     await SqlItems(database).save_items([(Item("files", "read"), frozenset())])
    ...     after = await version.read()
    ...     await database.close()
    ...     return after > before
    >>> asyncio.run(compare())
    True
    """

    async def read(self) -> int: ...

    async def increase(self) -> None:
        """Tells other processes that the index of the catalogue has changed."""

    async def wait_for_change(self, seconds: float) -> None:
        """Returns when the version may have changed, at the latest after so many seconds."""

    async def close(self) -> None: ...


class SkillStore(Protocol):
    """The skills of the catalogue, their items, and the suggested skills. Every write is one transaction.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.items import SqlItems
    >>> from toolscript.adapters.sql.skills import SqlSkills
    >>> async def assign_item():
    ...     database = Database("sqlite://")
    ...     store = SqlSkills(database)
    ...     await SqlItems(database).save_items([(Item("files", "read"), frozenset())])
    ...     await store.add_skill(Skill("reading", "Reading"))
    ...     await store.assign("files__read", [Assignment("reading", confidence=1.0, is_primary=True)])
    ...     counts = await store.count_items()
    ...     await database.close()
    ...     return counts
    >>> asyncio.run(assign_item())
    {'reading': 1}
    """

    async def add_skill(self, skill: Skill) -> None:
        """Adds a skill. Raises Conflict when the id is taken."""

    async def save_skills(self, skills: Sequence[Skill]) -> None:
        """Adds or replaces skills for a person: later seeds leave them alone. Items of inactive skills count as not
        classified."""

    async def find_seed(self) -> str | None:
        """The digest of the skills that were seeded last; None before the first skills."""

    async def seed_skills(self, digest: str, skills: Sequence[Skill]) -> bool:
        """Makes these the seeded skills, unless this digest was the last one seeded; returns whether it did.

        Skills that people saved or deleted stay as they are. Skills of earlier seeds that are missing now are deleted
        as by `delete_skill`; one that people assigned items to becomes inactive instead, until a seed names it again.
        """

    async def delete_skill(self, skill_id: str) -> None:
        """Deletes a skill and its assignments for a person: no seed brings it back. Its items count as not classified;
        an item that loses its primary skill gets the most confident of its others. Raises NotFound."""

    async def list_skills(self, *, active_only: bool = True) -> list[Skill]:
        """Skills, ordered by id."""

    async def get_update_time(self, skill_id: str) -> datetime | None:
        """When a skill was last changed; None for an unknown one."""

    async def get_members(self, skill_ids: Ids = None) -> dict[str, list[SkillMember]]:
        """The active items of these skills, ordered by id; skills without items are left out. The id "" has the
        items without an active primary skill."""

    async def count_items(self) -> dict[str, int]:
        """The number of active items of each skill; skills without items are left out."""

    async def save_classifications(
        self, records: Sequence[ClassificationRecord], *, replace_human: bool = False
    ) -> None:
        """Replaces the items' assignments, stamps and pending suggestions.

        Items and skills that no longer exist are ignored; an item that loses a skill this way counts as not classified.
        Assignments made by people stay, unless `replace_human`. A suggestion that a person rejected for an item is not
        made again; one that is pending under the same name stays, with its number.
        """

    async def replace_stamps(self, stamps: Mapping[str, tuple[str, str]]) -> None:
        """Replaces stamps of items (id to old and new stamp) where the old one is still stored."""

    async def assign(self, item_id: str, assignments: Sequence[Assignment]) -> None:
        """Replaces the item's assignments by a person's and deletes its pending suggestions; without assignments the
        item counts as not classified. Raises NotFound for an unknown item or skill."""

    async def add_suggestion(self, suggestion: Suggestion) -> Suggestion:
        """Queues a suggested skill for review and returns it with its number."""

    async def list_suggestions(self, status: SuggestionStatus | None = None) -> list[Suggestion]:
        """Suggestions, ordered by number."""

    async def review_suggestion(
        self, number: int, status: SuggestionStatus, reviewed_by: str | None = None, *, into: Skill | str | None = None
    ) -> Suggestion:
        """Records a person's decision about a pending suggestion. With `into`, its items go into that existing skill
        (an id) or new skill. Raises NotFound for an unknown suggestion or skill, Conflict for a suggestion that is not
        pending or a skill id that is taken."""


class PinStore(Protocol):
    """The approved definitions of items, and definitions in quarantine, in the database of the items.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.pins import SqlPins
    >>> async def pin():
    ...     database, item = Database("sqlite://"), Item("files", "read", "Reads a file")
    ...     store = SqlPins(database)
    ...     await store.save_pins([Pin(item.id, item.server, approved=item)])
    ...     digests = await store.get_approved_digests(["files"])
    ...     await database.close()
    ...     return digests == {"files__read": item.digest}
    >>> asyncio.run(pin())
    True
    """

    async def get_approved_digests(self, servers: Several[str]) -> dict[str, str]:
        """The digests of the approved definitions of these servers' items, by id; empty for an item in quarantine."""

    async def get_pins(self, item_ids: Ids = None, *, only_quarantined: bool = False) -> list[Pin]:
        """The pins of these items, ordered by id."""

    async def get_unreviewed_pins(self, *, after: str, limit: int) -> list[Pin]:
        """Pins of approved definitions that await review, ordered by id, from the first id after `after`."""

    async def save_pins(self, pins: Sequence[Pin]) -> None:
        """Adds or replaces pins."""


class FeedbackStore(Protocol):
    """The requests that items served or are wrong for, and how far their vectors moved, in the database of the items.
    Every write is one transaction; a write that changes steps increases the version of the catalogue.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.feedback import SqlFeedback
    >>> async def record():
    ...     database = Database("sqlite://")
    ...     store = SqlFeedback(database)
    ...     for request in ("show the log", "Show  the log"):
    ...         await store.add_verdict(Verdict("git__log", request), max_per_item=9, max_per_caller=9, max_of_caller=9)
    ...     found = await store.get_verdicts()
    ...     await database.close()
    ...     return [verdict.request for verdict in found]
    >>> asyncio.run(record())
    ['show the log']
    """

    async def add_verdict(
        self,
        verdict: Verdict,
        *,
        max_per_item: int,
        max_per_caller: int,
        max_of_caller: int,
        overrules: bool = True,
    ) -> None:
        """Records a verdict; it replaces one with the same item, request and caller, but one as wrong only if it
        `overrules`. Of an item, only so many verdicts
        are kept, and only so many of the same caller; of a caller only so many in all: the newest."""

    async def remove_verdict(self, verdict: Verdict) -> bool:
        """Deletes the verdict of that item, request and caller; returns whether it existed."""

    async def remove_caller(self, caller: str, item_ids: Ids = None) -> int:
        """Deletes the verdicts of that caller, of these items; returns how many there were."""

    async def get_verdicts(self, item_ids: Ids = None) -> list[Verdict]:
        """The verdicts of these items, ordered by item and time."""

    async def save_vectors(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """Keeps the vectors that a model made of requests, by their digests."""

    async def get_steps(self, item_ids: Ids = None) -> dict[str, Step]:
        """The steps of these items, by id."""

    async def replace_steps(self, steps: Sequence[Step]) -> None:
        """Makes these the steps of all items."""

    async def reset(self, item_ids: Ids = None) -> int:
        """Deletes the verdicts and steps of these items; returns how many verdicts there were."""


class DocumentStore(Protocol):
    """The documents of all tenants. Every write is one transaction and marks the documents as pending until the index
    has been updated, so that an interrupted update can be found and finished.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.documents import SqlDocuments
    >>> async def save_and_index():
    ...     database = Database("sqlite://")
    ...     store, note = SqlDocuments(database), Document("note", "Buy milk")
    ...     await store.save_documents("acme", [StoredDocument(note, terms=frozenset({7}))])
    ...     before = await store.list_pending()
    ...     await store.mark_indexed("acme", {"note": note.digest})
    ...     after = await store.list_pending()
    ...     await database.close()
    ...     return before, after
    >>> asyncio.run(save_and_index())
    ({'acme': ['note']}, {})
    """

    async def save_documents(self, tenant: str, documents: Sequence[StoredDocument]) -> None:
        """Adds or replaces documents (by id) with the terms they contain."""

    async def save_terms(self, tenant: str, documents: Sequence[StoredDocument]) -> None:
        """Replaces the terms of documents that are stored with the same digest."""

    async def list_outdated(self, *, limit: int) -> dict[str, list[str]]:
        """The ids of up to `limit` documents with terms of an earlier version, by tenant."""

    async def delete_documents(self, tenant: str, ids: Sequence[str]) -> int:
        """Deletes documents and subtracts their terms from the tenant's counts; returns how many existed."""

    async def mark_pending(self, tenant: str, ids: Sequence[str]) -> None:
        """Marks documents as pending that are about to be indexed without having been saved before."""

    async def mark_indexed(self, tenant: str, digests: Mapping[str, str | None]) -> None:
        """Records that the index has these documents with these digests (None: deleted). Removes the marks of this
        process and of processes that stopped long ago, unless a document has changed since; the marks of other running
        processes stay."""

    async def list_pending(self) -> dict[str, list[str]]:
        """The ids, saved or deleted, that the index does not reflect yet, by tenant."""

    async def list_tenants(self) -> list[str]:
        """Every tenant that has documents."""

    async def get_documents(self, tenant: str, ids: Sequence[str] | None = None) -> list[Document]:
        """The documents with these ids (None: all), ordered by id."""

    async def list_documents(self, tenant: str, *, after: str | None = None, limit: int) -> list[Document]:
        """The first `limit` documents with ids after this id, in the order of code points."""

    async def list_ids(self, tenant: str, *, after: str | None = None, limit: int) -> list[str]:
        """The ids of what `list_documents` returns."""

    async def count(self, tenant: str) -> int:
        """The number of documents."""

    async def get_digests(self, tenant: str, ids: Sequence[str]) -> dict[str, str]:
        """The digests of the existing documents among these, by id."""

    async def count_terms(self, tenant: str, terms: Sequence[int]) -> TermCounts:
        """How many of the tenant's documents contain each term."""

    async def ping(self) -> None:
        """Raises Unavailable when the store does not answer."""


class KnowledgeReader(Protocol):
    """Reads sources, chunks and extractions: all that a search needs.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.knowledge import SqlKnowledgeReader
    >>> async def count():
    ...     reader = SqlKnowledgeReader(Database("sqlite://"))
    ...     counts = await reader.count_contents()
    ...     await reader.close()
    ...     return counts
    >>> asyncio.run(count())
    {}
    """

    async def get_records(
        self, source_ids: Several[str], chunk_ids: Several[str], extraction_ids: Several[str]
    ) -> KnowledgeRecords:
        """The existing records among these, in one batched read."""

    async def has_sources(self) -> bool:
        """Whether there is any source."""

    async def list_sources(self) -> list[Source]:
        """All sources, ordered by title, then id."""

    async def get_contents(self, source_id: str) -> tuple[list[Chunk], list[Extraction]]:
        """The chunks of a source in reading order, and its extractions by id; empty lists for an unknown source."""

    async def count_contents(self) -> dict[str, tuple[int, int]]:
        """The numbers of chunks and extractions of each source, by its id."""

    async def count_terms(self, terms: Sequence[int]) -> TermCounts:
        """The number of chunks with counted terms, and the number of chunks with each of these terms."""

    async def ping(self) -> None:
        """Raises Unavailable when the store does not answer."""

    async def close(self) -> None: ...


class KnowledgeStore(KnowledgeReader, Protocol):
    """Reads and writes knowledge.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.knowledge import SqlKnowledge
    >>> from toolscript.domain.knowledge import Position
    >>> async def save_and_read():
    ...     store = SqlKnowledge(Database("sqlite://"))
    ...     source = Source("tides", "book", "Of Tides", authors=(), path="tides.pdf", ingested_at="2026-01-01")
    ...     await store.replace(source, [Chunk("c1", "tides", "The moon ...", Position(page=1), 4)], [])
    ...     chunks, _ = await store.get_contents("tides")
    ...     await store.close()
    ...     return [chunk.content for chunk in chunks]
    >>> asyncio.run(save_and_read())
    ['The moon ...']
    """

    async def replace(self, source: Source, chunks: Sequence[Chunk], extractions: Sequence[Extraction]) -> None:
        """Makes the source have exactly these chunks, in this order, and these extractions.

        After an interruption the store has the old or the new records; a store without transactions may have some of
        both, with the source's status not ready. Repeating the call completes it.
        """

    async def add_extractions(self, source_id: str, extractions: Sequence[Extraction]) -> None:
        """Adds or replaces extractions by id. Raises NotFound for an unknown source."""

    async def set_term_counts(self, source_id: str, counts: TermCounts) -> None:
        """Replaces the counts of terms of a source's chunks. Ignores an unknown source."""

    async def set_status(self, source_id: str, status: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Changes the status of a source, and its metadata unless None. Ignores an unknown source."""

    async def remove(self, source_id: str) -> bool:
        """Deletes a source with its chunks and extractions; returns whether it existed."""
