"""The write path of documents: compare digests, embed what changed, store (the truth), index.

Embedding takes most of the time, so a few batches run concurrently: while one is embedded, another is indexed and a
third one stored. A document is marked as pending in the store until the index holds it: `repair` completes what a
crash interrupted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from toolscript.domain.documents import SOURCE_FIELD, Document, StoredDocument, check_document, check_identifiers
from toolscript.domain.errors import NotFound, ToolscriptError, Unavailable
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.stores import DocumentStore
from toolscript.retrieval.reconcile import ReconcilePlan, Reconciler, split_batches
from toolscript.retrieval.text.chunking import PASSAGE_SIZE
from toolscript.retrieval.text.item_text import document_frequencies
from toolscript.services.documents.points import (
    DOCUMENTS,
    DocumentDraft,
    first_parts,
    metadata_field,
    of_documents,
    of_tenant,
)
from toolscript.services.support.concurrency import KeyedLocks, Progress, iterate_async, run_concurrently

# Small enough for visible progress, and for small requests not to wait long behind large ones.
PASSAGES_IN_A_BATCH = 32
DOCUMENTS_IN_A_BATCH = 64
BATCHES_AT_ONCE = 3
# After this many failures one after the other, the documents are not the problem.
FAILURES_IN_A_ROW = 200
NO_MODEL = "none"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class PutReport:
    """How many documents were added, changed and left alone."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0


class IngestDocuments:
    """Adds and deletes documents of tenants. Unchanged documents are not written again, and of changed documents only
    the changed passages are embedded."""

    def __init__(self, store: DocumentStore, index: VectorIndex, embedder: Embedder | None) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder
        self._locks = KeyedLocks()
        self.is_unfinished = asyncio.Event()
        """Set when something failed between store and index: `repair` completes it."""
        self._reconciler = Reconciler(index, embedder, DOCUMENTS, key_field="doc_id", digest_field="text_digest")

    async def put(self, tenant: str, documents: Sequence[Document], progress: Progress | None = None) -> PutReport:
        """Adds or replaces documents; the last of equal ids counts. `progress` gets the done and total counts.

        Raises Invalid for an invalid document, before anything is written, and Unavailable when the model or a store
        fails: then the last batch is not written, and earlier batches are.
        """
        check_identifiers(tenant=tenant)
        given = list({d.id: d for d in documents}.values())
        for document in given:
            check_document(document)
        report, tally = PutReport(), _Tally(len(given), progress)

        async def put_batch(batch: Sequence[Document]) -> None:
            async with self._lock(tenant, [d.id for d in batch]):
                await self._put_batch(tenant, batch, report)
                tally.add(len(batch))

        size = max(PASSAGES_IN_A_BATCH, self._embedder.batch_size if self._embedder else 0)
        await run_concurrently(iterate_async(_batches(given, size)), put_batch, max_concurrent=BATCHES_AT_ONCE)
        return report

    async def delete(self, tenant: str, ids: Sequence[str]) -> int:
        """Deletes documents; returns how many existed. Raises Unavailable as `put` does."""
        for own_id in ids:
            check_identifiers(tenant=tenant, id=own_id)
        gone = 0
        for page in split_batches(list(dict.fromkeys(ids)), DOCUMENTS_IN_A_BATCH):
            async with self._lock(tenant, page):
                await self._index.require_space(DOCUMENTS, 0)
                async with self._undo_on_failure(tenant, dict.fromkeys(page)):
                    gone += await self._store.delete_documents(tenant, page)
                    await self._catch_up(tenant, page)
        return gone

    async def delete_others(self, tenant: str, origin: str, kept: AbstractSet[str]) -> int:
        """Deletes the documents that were read from a file (see SOURCE_FIELD), except the ids in `kept`; returns the
        number of deleted documents."""
        where = Filter(must=(of_tenant(tenant), first_parts(), Condition(metadata_field(SOURCE_FIELD), Op.EQ, origin)))
        payloads = await self._reconciler.find(where, ["doc_id"])
        return await self.delete(tenant, sorted({str(payload["doc_id"]) for payload in payloads.values()} - kept))

    async def find_complete(self, tenant: str, digests: Mapping[str, str]) -> set[str]:
        """The ids of the documents that are stored with these digests, and searchable; none while the index has more or
        fewer documents of the tenant than the store."""
        indexed = await self._index.count(DOCUMENTS, Filter(must=(of_tenant(tenant), first_parts())))
        if indexed != await self._store.count(tenant):
            return set()
        stored = await self._store.get_digests(tenant, [*digests])
        pending = (await self._store.list_pending()).get(tenant, [])
        return {i for i, digest in stored.items() if digest == digests[i]} - set(pending)

    async def get(self, tenant: str, doc_id: str) -> Document:
        """The document of that id. Raises NotFound."""
        check_identifiers(tenant=tenant, id=doc_id)
        documents = await self._store.get_documents(tenant, [doc_id])
        if not documents:
            raise NotFound(f"there is no document {doc_id!r}", details={"document_id": doc_id})
        return documents[0]

    async def listing(self, tenant: str, *, after: str | None = None, limit: int = 100) -> list[Document]:
        """The documents with greater ids than `after`, ordered by id (by code points)."""
        check_identifiers(tenant=tenant, after=after)
        return await self._store.list_documents(tenant, after=after, limit=limit)

    async def index_all(self, progress: Progress | None = None) -> int:
        """Makes the index hold exactly the stored documents; returns how many documents it had to write."""
        await self._renew_terms(_Tally())
        orphans = await self._find_indexed()
        tenants = await self._store.list_tenants()
        tally = _Tally(sum([await self._store.count(t) for t in tenants]), progress)
        await self._catch_up_all(self._list_stored_pages(tenants, orphans), tally)
        await self._catch_up_all(iterate_async(_pages_by_tenant(orphans)), _Tally())
        return tally.written

    async def repair(self) -> int:
        """Indexes the documents that a crash or a failure left pending, documents with terms of an earlier version, and
        the documents of tenants where the index was replaced, so that index and store have different numbers of
        documents. Returns the number of written documents.

        A document that fails does not stop the others; at the end Unavailable is raised with their number.
        """
        tally = _Tally()
        await self._renew_terms(tally)
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

    @asynccontextmanager
    async def _lock(self, tenant: str, ids: Sequence[str]) -> AsyncIterator[None]:
        """Locks the documents for a write, and notes when it fails."""
        async with self._locks.lock((tenant, i) for i in ids):
            try:
                yield
            except BaseException:
                self.is_unfinished.set()
                raise

    @asynccontextmanager
    async def _undo_on_failure(self, tenant: str, written: Mapping[str, str | None]) -> AsyncIterator[None]:
        """Brings the store back when the block fails: a caller who gets an error may rely on nothing being done.
        `written` has the digests that the block gives to documents; None for documents that it deletes. What another
        process has written since stays. If the store fails, too, the documents stay pending, and `repair` indexes what
        the store has."""
        before = await self._store.get_documents(tenant, [*written])
        try:
            yield
        except Exception:
            try:
                now = await self._store.get_digests(tenant, [*written])
                unchanged_ids = {doc_id for doc_id, digest in written.items() if now.get(doc_id) == digest}
                drafts = await asyncio.to_thread(self._draft, tenant, [d for d in before if d.id in unchanged_ids], {})
                await self._store.save_documents(tenant, _list_stored(drafts))
                await self._store.delete_documents(tenant, sorted(unchanged_ids - {d.id for d in before}))
                await self._catch_up(tenant, [*written])
            except Exception as error:  # noqa: BLE001  (the first error is the one to report)
                reason = f"{type(error).__name__}: {error}"
                log.warning("refused_change_not_undone_completely", extra={"tenant": tenant, "reason": reason})
            raise

    async def _find_indexed(self, where: Filter = EVERYTHING) -> dict[str, set[str]]:
        """The ids of the indexed documents by tenant. Points without a document are deleted."""
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
        """The ids of all stored documents. They are removed from the orphans."""
        for tenant in tenants:
            after = None
            while ids := await self._store.list_ids(tenant, after=after, limit=DOCUMENTS_IN_A_BATCH):
                orphans.get(tenant, set()).difference_update(ids)
                yield tenant, ids
                after = ids[-1]

    async def _catch_up_all(
        self, pages: AsyncIterator[tuple[str, list[str]]], tally: _Tally, *, careful: bool = False
    ) -> None:
        """Catches up page by page. If `careful`, a page that fails is repeated document by document, and the documents
        that fail are logged and counted."""

        async def work(page: tuple[str, list[str]]) -> None:
            tenant, ids = page
            async with self._locks.lock((tenant, i) for i in ids):
                try:
                    tally.add(len(ids), await self._catch_up(tenant, ids))
                except Exception:
                    if not careful:
                        raise
                    for own_id in ids:
                        await self._try_to_catch_up(tenant, own_id, tally)

        await run_concurrently(pages, work, max_concurrent=BATCHES_AT_ONCE)

    async def _renew_terms(self, tally: _Tally) -> None:
        """Reads the terms of documents again that an earlier version has read. Page by page, so that counts and index
        agree for the documents before and after: searches find both."""
        before: dict[str, list[str]] = {}
        while (outdated := await self._store.list_outdated(limit=DOCUMENTS_IN_A_BATCH)) and outdated != before:
            for tenant, ids in outdated.items():
                async with self._lock(tenant, ids):
                    documents = await self._store.get_documents(tenant, ids)
                    drafts = await asyncio.to_thread(self._draft, tenant, documents, {})
                    await self._store.save_terms(tenant, _list_stored(drafts))
                    tally.add(len(ids), await self._index_drafts(tenant, drafts))
            before = outdated

    async def _try_to_catch_up(self, tenant: str, doc_id: str, tally: _Tally) -> None:
        try:
            tally.add(1, await self._catch_up(tenant, [doc_id]))
        except Exception as error:
            reason = error.message if isinstance(error, ToolscriptError) else f"{type(error).__name__}: {error}"
            log.warning("document_not_indexed", extra={"tenant": tenant, "document_id": doc_id, "reason": reason})
            tally.failed.add((tenant, doc_id))
            tally.failed_in_a_row += 1
            if tally.failed_in_a_row >= FAILURES_IN_A_ROW:
                raise

    async def _put_batch(self, tenant: str, batch: Sequence[Document], report: PutReport) -> None:
        existing = await self._store.get_digests(tenant, [d.id for d in batch])
        drafts = await asyncio.to_thread(self._draft, tenant, batch, existing)
        fresh = _list_stored(drafts)
        # What may fail comes first, and takes most of the time: an index that cannot be read, a full disk, a model.
        plan, known = await self._plan(tenant, drafts)
        await self._index.require_space(DOCUMENTS, sum(1 + len(draft.texts) for draft in plan.stale))
        await self._reconciler.embed(plan)
        async with self._undo_on_failure(tenant, {d.document.id: d.document.digest for d in fresh}):
            await self._store.save_documents(tenant, fresh)
            await self._index_drafts(tenant, drafts, planned=(plan, known))
        changed = sum(d.document.id in existing for d in fresh)
        report.added += len(fresh) - changed
        report.changed += changed
        report.unchanged += len(batch) - len(fresh)

    async def _catch_up(self, tenant: str, ids: list[str]) -> int:
        """Makes the index hold what the store has of these documents; returns how many it had to write."""
        documents = await self._store.get_documents(tenant, ids)
        drafts = await asyncio.to_thread(self._draft, tenant, documents, {d.id: d.digest for d in documents})
        return await self._index_drafts(tenant, drafts, gone=set(ids) - {d.id for d in documents})

    def _draft(self, tenant: str, documents: Sequence[Document], existing: Mapping[str, str]) -> list[DocumentDraft]:
        """Drafts of the documents, with the term frequencies of documents that differ from the existing digests."""
        drafts = [DocumentDraft(tenant, d, self._embedder is not None) for d in documents]
        _count_terms([draft for draft in drafts if existing.get(draft.key) != draft.digest])
        return drafts

    async def _plan(
        self, tenant: str, drafts: Sequence[DocumentDraft], gone: AbstractSet[str] = frozenset()
    ) -> tuple[ReconcilePlan[DocumentDraft], set[object]]:
        """The changes to the index, and the digests of the texts that it has."""
        where = of_documents(tenant, [*(draft.key for draft in drafts), *gone])
        existing = await self._reconciler.find(where, ["doc_id", "digest", "text_digest", "terms_version"])
        plan = await self._reconciler.plan(drafts, existing)
        return plan, {payload.get("text_digest") for payload in existing.values()}

    async def _index_drafts(
        self,
        tenant: str,
        drafts: Sequence[DocumentDraft],
        gone: AbstractSet[str] = frozenset(),
        planned: tuple[ReconcilePlan[DocumentDraft], set[object]] | None = None,
    ) -> int:
        """Makes the index hold these documents and no deleted documents; returns the number of written documents.
        Documents that were saved just now have frequencies; the others are marked as pending first, in case of a
        crash."""
        plan, known = planned or await self._plan(tenant, drafts, gone)
        await self._reconciler.embed(plan)
        uncounted = [draft for draft in plan.stale if draft.frequencies is None]
        if unsaved := [*(draft.key for draft in uncounted), *sorted(plan.gone)]:
            await self._store.mark_pending(tenant, unsaved)
        await asyncio.to_thread(_count_terms, uncounted)
        await self._reconciler.apply(plan)
        indexed: dict[str, str | None] = dict.fromkeys(gone)
        indexed |= {draft.key: draft.digest for draft in drafts}
        if self._embedder is None:
            digests = plan.vectors.keys() | known
            bare = [draft.key for draft in drafts if not digests >= draft.texts.keys()]
            if bare and await self._wants_vectors():  # they stay pending until there is a model
                indexed = {i: digest for i, digest in indexed.items() if i not in bare}
        try:
            await self._settle(tenant, indexed)
        except Unavailable as error:  # the change is complete: its mark goes with the next repair
            log.warning("documents_stay_pending", extra={"tenant": tenant, "reason": error.message})
            self.is_unfinished.set()
        return plan.changes

    async def _settle(self, tenant: str, digests: Mapping[str, str | None]) -> None:
        """Marks these documents as indexed. Documents that another process has changed meanwhile are indexed again: of
        two processes that wrote the same document, the later one sees what the other stored."""
        now = await self._store.get_digests(tenant, [*digests])
        overtaken = [i for i, digest in digests.items() if now.get(i) != digest]
        await self._store.mark_indexed(tenant, digests)
        if overtaken:
            await self._catch_up(tenant, overtaken)

    async def _wants_vectors(self) -> bool:
        collection = await self._index.describe(DOCUMENTS)
        return collection is not None and collection.model != NO_MODEL


@dataclass(slots=True)
class _Tally:
    """Counts done, written and failed documents, and reports progress."""

    total: int = 0
    progress: Progress | None = None
    done: int = 0
    written: int = 0
    failed: set[tuple[str, str]] = field(default_factory=set)
    failed_in_a_row: int = 0

    def __post_init__(self) -> None:
        if self.total:
            self.add(0)

    def add(self, done: int, written: int = 0) -> None:
        """Counts documents that are done."""
        self.failed_in_a_row = 0
        self.done += done
        self.written += written
        if self.progress:
            self.progress(min(self.done, self.total), self.total)


def _batches(documents: Sequence[Document], size: int) -> Iterator[list[Document]]:
    """The documents in batches of about so many passages; a long document is a batch."""
    batch: list[Document] = []
    weight = 0
    for document in documents:
        more = 1 + len(document.text) // PASSAGE_SIZE
        if batch and weight + more > size:
            yield batch
            batch, weight = [], 0
        batch.append(document)
        weight += more
    if batch:
        yield batch


def _pages_by_tenant(ids: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, list[str]]]:
    for tenant, doc_ids in ids.items():
        for page in split_batches(sorted(doc_ids), DOCUMENTS_IN_A_BATCH):
            yield tenant, page


def _list_stored(drafts: Sequence[DocumentDraft]) -> list[StoredDocument]:
    return [StoredDocument(d.document, frozenset(d.frequencies)) for d in drafts if d.frequencies is not None]


def _count_terms(drafts: Sequence[DocumentDraft]) -> None:
    for draft in drafts:
        draft.frequencies = document_frequencies(draft.document)
