"""The write path of documents: compare digests, store (the truth), embed what changed, index.

Embedding takes the longest by far, so a few batches are under way at once: while one is embedded, the one before is
indexed and the next one stored. Whatever is stored waits, in the store, until the index has it, and whoever writes
into the index without having stored says so there before: what a crash interrupts is finished by `repair`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from toolscript.domain.documents import Document, StoredDocument, check_document, check_identifiers
from toolscript.domain.errors import NotFound, ToolscriptError, Unavailable
from toolscript.domain.filters import EVERYTHING, Filter
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.reconcile import Reconciler
from toolscript.retrieval.text.chunking import PASSAGE_SIZE
from toolscript.retrieval.text.item_text import document_frequencies
from toolscript.services.documents.points import (
    DOCUMENTS,
    DocumentDraft,
    draft_document,
    first_parts,
    of_documents,
    of_tenant,
)
from toolscript.services.support.concurrency import KeyedLocks, iterate_async, run_concurrently

# Few enough for progress to be seen, and for whoever writes a little not to wait long behind whoever writes much.
PASSAGES_IN_A_BATCH = 32
DOCUMENTS_IN_A_BATCH = 64
BATCHES_AT_ONCE = 3
# So many failures one after the other, and it is not the documents that are wrong.
FAILURES_IN_A_ROW = 200
NO_MODEL = "none"

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PutReport:
    """What became of the documents that were put."""

    added: int
    changed: int
    unchanged: int


@dataclass(frozen=True, slots=True)
class _Indexed:
    """How many documents the index held differently, and which of them are there without vectors for want of a
    model."""

    written: int
    bare: AbstractSet[str]


class IngestDocuments:
    """Brings documents in and out, one tenant at a time. Unchanged ones are left alone, in the store and in the
    index; of changed ones only the passages that changed are embedded."""

    def __init__(self, store: DocumentStore, index: VectorIndex, embedder: Embedder | None) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder
        self._locks = KeyedLocks()
        self._reconciler = Reconciler(index, embedder, DOCUMENTS, key_field="doc_id", digest_field="text_digest")

    async def put(self, tenant: str, documents: Sequence[Document], progress: Progress | None = None) -> PutReport:
        """Adds or replaces documents; of equal ids the last counts. `progress` is told how many are done, of how many.

        Raises Invalid for a document that cannot be kept, before anything is written; Unavailable when the model or
        a store fails, and what was stored by then waits for `repair`, or to be put again.
        """
        check_identifiers(tenant=tenant)
        given = list({d.id: d for d in documents}.values())
        for document in given:
            check_document(document)
        tally = _Tally(len(given), progress)

        async def put_batch(batch: Sequence[Document]) -> None:
            async with self._locks.lock((tenant, d.id) for d in batch):
                tally.add(await self._put_batch(tenant, batch))

        await run_concurrently(iterate_async(_batches(given)), put_batch, max_concurrent=BATCHES_AT_ONCE)
        return tally.report

    async def delete(self, tenant: str, ids: Sequence[str]) -> int:
        """Removes documents; returns how many there were."""
        for own_id in ids:
            check_identifiers(tenant=tenant, id=own_id)
        gone = 0
        for page in _pages(list(dict.fromkeys(ids))):
            async with self._locks.lock((tenant, i) for i in page):
                gone += await self._store.delete_documents(tenant, page)
                await self._catch_up(tenant, page)
        return gone

    async def get(self, tenant: str, doc_id: str) -> Document:
        """The document of that id. Raises NotFound."""
        check_identifiers(tenant=tenant, id=doc_id)
        found = await self._store.get_documents(tenant, [doc_id])
        if not found:
            raise NotFound(f"there is no document {doc_id!r}", details={"document_id": doc_id})
        return found[0]

    async def listing(self, tenant: str, *, after: str | None = None, limit: int = 100) -> list[Document]:
        """Documents by id order (of code points), from the first one after that id."""
        check_identifiers(tenant=tenant, after=after)
        return await self._store.list_documents(tenant, after=after, limit=limit)

    async def index_all(self, progress: Progress | None = None) -> int:
        """Makes the index hold exactly the stored documents; returns how many it lacked or had differently."""
        orphans = await self._find_indexed()
        tenants = await self._store.list_tenants()
        tally = _Tally(sum([await self._store.count(t) for t in tenants]), progress)
        await self._catch_up_all(self._list_stored_pages(tenants, orphans), tally)
        written = tally.written
        await self._catch_up_all(iterate_async(_pages_by_tenant(orphans)), _Tally(0, None))
        return written

    async def repair(self) -> int:
        """Finishes whatever waits for the index, because a crash or a failure came between, and makes an index that
        holds fewer or more of a tenant's documents than the store, because it is another one than before, hold what is
        stored; returns how many documents were written.

        A document that fails keeps no other from being finished. Raises Unavailable, in the end, when some have
        failed."""
        tally = _Tally(0, None)
        waiting = await self._store.list_pending()
        await self._catch_up_all(iterate_async(_pages_by_tenant(waiting)), tally, careful=True)
        tenants = await self._store.list_tenants()
        unseen = await self._index.count(DOCUMENTS, Filter(must=(first_parts(),)))
        for tenant in tenants:
            indexed = await self._index.count(DOCUMENTS, Filter(must=(of_tenant(tenant), first_parts())))
            unseen -= indexed
            if indexed != await self._store.count(tenant):
                orphans = await self._find_indexed(Filter(must=(of_tenant(tenant),)))
                await self._catch_up_all(self._list_stored_pages([tenant], orphans), tally, careful=True)
                await self._catch_up_all(iterate_async(_pages_by_tenant(orphans)), tally, careful=True)
        if unseen > 0:
            others = {t: ids for t, ids in (await self._find_indexed()).items() if t not in set(tenants)}
            await self._catch_up_all(iterate_async(_pages_by_tenant(others)), tally, careful=True)
        if failed := len(tally.failed):
            raise Unavailable(
                f"{failed:,} documents could not be indexed: the log tells why, and the next repair tries again",
                details={"documents": failed},
            )
        return tally.written

    async def _find_indexed(self, where: Filter = EVERYTHING) -> dict[str, set[str]]:
        """The documents that the index has points of, by tenant. Points that are of none are removed."""
        indexed: dict[str, set[str]] = {}
        strangers = []
        for point in await self._index.scroll(DOCUMENTS, where=where, fields=["tenant", "doc_id"]):
            match point.payload:
                case {"tenant": str(tenant), "doc_id": str(doc_id)}:
                    indexed.setdefault(tenant, set()).add(doc_id)
                case _:
                    strangers.append(point.id)
        await self._index.delete(DOCUMENTS, strangers)
        return indexed

    async def _list_stored_pages(
        self, tenants: Sequence[str], orphans: Mapping[str, set[str]]
    ) -> AsyncIterator[tuple[str, list[str]]]:
        """The ids of all stored documents; they are no orphans."""
        for tenant in tenants:
            after = None
            while ids := await self._store.list_ids(tenant, after=after, limit=DOCUMENTS_IN_A_BATCH):
                orphans.get(tenant, set()).difference_update(ids)
                yield tenant, ids
                after = ids[-1]

    async def _catch_up_all(
        self, pages: AsyncIterator[tuple[str, list[str]]], tally: _Tally, *, careful: bool = False
    ) -> None:
        """Catches up page by page; if careful, those that fail document by document, and goes on with the others."""

        async def work(page: tuple[str, list[str]]) -> None:
            tenant, ids = page
            async with self._locks.lock((tenant, i) for i in ids):
                try:
                    tally.add_done(len(ids), written=await self._catch_up(tenant, ids))
                except Exception:
                    if not careful:
                        raise
                    for own_id in ids:
                        await self._try_to_catch_up(tenant, own_id, tally)

        await run_concurrently(pages, work, max_concurrent=BATCHES_AT_ONCE)

    async def _try_to_catch_up(self, tenant: str, doc_id: str, tally: _Tally) -> None:
        try:
            tally.add_done(1, written=await self._catch_up(tenant, [doc_id]))
        except Exception as error:
            reason = error.message if isinstance(error, ToolscriptError) else f"{type(error).__name__}: {error}"
            log.warning("document_not_indexed", extra={"tenant": tenant, "document_id": doc_id, "reason": reason})
            if tally.fail(tenant, doc_id) >= FAILURES_IN_A_ROW:
                raise

    async def _put_batch(self, tenant: str, batch: Sequence[Document]) -> PutReport:
        existing = await self._store.get_digests(tenant, [d.id for d in batch])
        drafts = await asyncio.to_thread(self._draft, tenant, batch, existing)
        fresh = [StoredDocument(d.document, frozenset(d.frequencies)) for d in drafts if d.frequencies is not None]
        await self._store.save_documents(tenant, fresh)
        indexed = await self._index_drafts(tenant, drafts)
        await self._settle(tenant, {d.key: d.digest for d in drafts}, indexed)
        changed = sum(d.document.id in existing for d in fresh)
        return PutReport(len(fresh) - changed, changed, len(batch) - len(fresh))

    async def _catch_up(self, tenant: str, ids: list[str]) -> int:
        """Makes the index hold what the store has of these documents; returns how many it had to write."""
        documents = await self._store.get_documents(tenant, ids)
        drafts = await asyncio.to_thread(self._draft, tenant, documents, {d.id: d.digest for d in documents})
        indexed = await self._index_drafts(tenant, drafts, gone=set(ids) - {d.id for d in documents})
        now: dict[str, str | None] = dict.fromkeys(ids)
        await self._settle(tenant, now | {d.key: d.digest for d in drafts}, indexed)
        return indexed.written

    def _draft(self, tenant: str, documents: Sequence[Document], existing: Mapping[str, str]) -> list[DocumentDraft]:
        """The documents in passages; with the terms of those that the store has differently or not at all."""
        drafts = [draft_document(tenant, d, has_model=self._embedder is not None) for d in documents]
        _count_terms([draft for draft in drafts if existing.get(draft.key) != draft.digest])
        return drafts

    async def _settle(self, tenant: str, digests: Mapping[str, str | None], indexed: _Indexed) -> None:
        """Tells the store what the index holds. What another process has changed meanwhile is indexed again: of two
        that wrote the same document, the one that comes later to this point sees what the other stored. What has no
        vectors goes on waiting, if the index is one of vectors: a repair makes them once there is a model."""
        if indexed.bare and await self._wants_vectors():
            digests = {i: digest for i, digest in digests.items() if i not in indexed.bare}
        now = await self._store.get_digests(tenant, [*digests])
        overtaken = [i for i, digest in digests.items() if now.get(i) != digest]
        await self._store.mark_indexed(tenant, digests)
        if overtaken:
            await self._catch_up(tenant, overtaken)

    async def _wants_vectors(self) -> bool:
        collection = await self._index.describe(DOCUMENTS)
        return collection is not None and collection.model != NO_MODEL

    async def _index_drafts(
        self, tenant: str, drafts: Sequence[DocumentDraft], gone: AbstractSet[str] = frozenset()
    ) -> _Indexed:
        """Makes the index hold these documents and not those that are gone. Documents that were saved just now have
        frequencies; writes of others are noted in the store first, for a crash that comes between."""
        where = of_documents(tenant, [*(draft.key for draft in drafts), *gone])
        existing = await self._reconciler.find(where, ["doc_id", "digest", "text_digest"])
        plan = await self._reconciler.plan(drafts, existing)
        await self._reconciler.embed(plan)
        uncounted = [draft for draft in plan.stale if draft.frequencies is None]
        if unsaved := [*(draft.key for draft in uncounted), *sorted(plan.gone)]:
            await self._store.mark_pending(tenant, unsaved)
        await asyncio.to_thread(_count_terms, uncounted)
        await self._reconciler.apply(plan)
        bare = set()
        if self._embedder is None:
            digests = plan.vectors.keys() | {payload.get("text_digest") for payload in existing.values()}
            bare = {draft.key for draft in drafts if not digests >= draft.texts.keys()}
        return _Indexed(plan.changes, bare)


class _Tally:
    """Counts documents as they are done, and tells whoever wants to know."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0
        self._failed_in_a_row = 0
        self.failed: set[tuple[str, str]] = set()
        self.written = 0
        self.report = PutReport(0, 0, 0)
        if progress and total:
            progress(0, total)

    def add(self, some: PutReport) -> None:
        """Takes what became of a batch."""
        so_far = self.report
        self.report = PutReport(
            so_far.added + some.added, so_far.changed + some.changed, so_far.unchanged + some.unchanged
        )
        self.add_done(some.added + some.changed + some.unchanged)

    def add_done(self, done: int, *, written: int = 0) -> None:
        """So many more are done."""
        self._failed_in_a_row = 0
        self._done += done
        self.written += written
        if self._progress:
            self._progress(min(self._done, self._total), self._total)

    def fail(self, tenant: str, doc_id: str) -> int:
        """A document has failed; returns how many have, one after the other."""
        self.failed.add((tenant, doc_id))
        self._failed_in_a_row += 1
        return self._failed_in_a_row


def _batches(documents: Sequence[Document]) -> Iterator[list[Document]]:
    """Documents by the number of passages that they will be: a long one is a batch of its own."""
    batch: list[Document] = []
    weight = 0
    for document in documents:
        more = 1 + len(document.text) // PASSAGE_SIZE
        if batch and weight + more > PASSAGES_IN_A_BATCH:
            yield batch
            batch, weight = [], 0
        batch.append(document)
        weight += more
    if batch:
        yield batch


def _pages(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), DOCUMENTS_IN_A_BATCH):
        yield list(ids[start : start + DOCUMENTS_IN_A_BATCH])


def _pages_by_tenant(ids: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, list[str]]]:
    for tenant, each in ids.items():
        for page in _pages(sorted(each)):
            yield tenant, page


def _count_terms(drafts: Sequence[DocumentDraft]) -> None:
    for draft in drafts:
        draft.frequencies = document_frequencies(draft.document)
