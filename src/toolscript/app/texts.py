"""Builds what finds documents, passages and large results, and what writes them. The modules that ingest are imported
with the first file: no search needs them."""

from __future__ import annotations

import platform
import secrets
from functools import cached_property
from typing import TYPE_CHECKING

from toolscript.app.access import AccessServices
from toolscript.app.catalogue import CatalogueServices
from toolscript.app.observability import Observability
from toolscript.app.stores import Stores
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder, LanguageModel, Reranker
from toolscript.retrieval.retriever import Retriever
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.services.documents.page_tokens import PageTokens
from toolscript.services.documents.search import DocumentSearch
from toolscript.services.knowledge.search import KnowledgeSearch
from toolscript.services.results.large_results import LargeResults
from toolscript.services.tools.text_contents import FindTextContents
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.services.ingest.jobs import IngestJobs
    from toolscript.services.ingest.runner import JobRunner
    from toolscript.services.knowledge.ingest import IngestKnowledge
    from toolscript.services.knowledge.transfer import ImportKnowledge


class TextServices:
    """The use cases of `services/documents`, `services/knowledge`, `services/ingest` and `services/results`."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        index: VectorIndex,
        embedder: Embedder | None,
        language_model: LanguageModel | None,
        reranker: Reranker | None,
        observability: Observability,
        access: AccessServices,
        catalogue: CatalogueServices,
    ) -> None:
        self._settings, self._stores, self._index = settings, stores, index
        self._embedder, self._language_model = embedder, language_model
        retriever = Retriever(embedder, index)
        self.contents = FindTextContents(stores.documents, stores.knowledge)
        self.large_results = LargeResults(
            stores.results, embedder, settings.result_tokens, catalogue.visibility.find_profile
        )
        self.document_search = DocumentSearch(
            retriever,
            index,
            stores.documents,
            access.plans,
            PageTokens((settings.page_secret or secrets.token_urlsafe(32)).encode()),
            observability.events,
            reranker=reranker,
            span=observability.span,
        )
        self.knowledge_search = KnowledgeSearch(
            retriever,
            index,
            stores.knowledge,
            observability.events,
            language_model=language_model,
            span=observability.span,
        )
        self.ingest_documents = IngestDocuments(stores.documents, index, embedder)

    @cached_property
    def ingest_knowledge(self) -> IngestKnowledge:
        from toolscript.adapters.files.reader import FileBooks
        from toolscript.services.knowledge.extraction import Extractor
        from toolscript.services.knowledge.ingest import IngestKnowledge

        extractor = Extractor(self._language_model) if self._language_model else None
        return IngestKnowledge(self._stores.knowledge_writer, self._index, self._embedder, FileBooks(), extractor)

    @cached_property
    def import_knowledge(self) -> ImportKnowledge:
        """Never writes a source at the same time as `ingest_knowledge`."""
        from toolscript.services.knowledge.transfer import ImportKnowledge

        return ImportKnowledge(self._stores.knowledge_writer, self._index, self._embedder, self.ingest_knowledge.locks)

    @property
    def jobs(self) -> IngestJobs:
        return self._ingestion[0]

    @property
    def job_runner(self) -> JobRunner:
        """Works on the jobs in this process."""
        return self._ingestion[1]

    @cached_property
    def _ingestion(self) -> tuple[IngestJobs, JobRunner]:
        from toolscript.app.files import describe_readers, open_document_reader
        from toolscript.services.ingest.file_work import IngestFile
        from toolscript.services.ingest.jobs import IngestJobs
        from toolscript.services.ingest.runner import JobRunner
        from toolscript.services.ingest.unchanged import UnchangedFiles

        store, place = self._stores.jobs, platform.node()
        unchanged = UnchangedFiles(store, self.ingest_documents, self.ingest_knowledge, describe_readers)
        work = IngestFile(store, self.ingest_documents, self.ingest_knowledge, open_document_reader(), unchanged)
        runner = JobRunner(store, work, place=place)
        return IngestJobs(store, runner, unchanged, place=place, folders=self._settings.ingest_folders), runner
