"""Builds what writes documents and knowledge from files. Its modules are imported when something is ingested: no search
needs them."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from toolscript.ports.indexes import VectorIndex
from toolscript.ports.jobs import JobStore
from toolscript.ports.models import Embedder, LanguageModel
from toolscript.ports.stores import KnowledgeStore
from toolscript.services.documents.ingest import IngestDocuments
from toolscript.settings import Settings

if TYPE_CHECKING:
    from toolscript.services.ingest.jobs import IngestJobs
    from toolscript.services.ingest.runner import JobRunner
    from toolscript.services.knowledge.ingest import IngestKnowledge
    from toolscript.services.knowledge.transfer import ImportKnowledge


def build_knowledge_ingest(
    store: KnowledgeStore, index: VectorIndex, embedder: Embedder | None, language_model: LanguageModel | None
) -> IngestKnowledge:
    """Builds what makes sources of files."""
    from toolscript.adapters.files.reader import FileBooks
    from toolscript.services.knowledge.extraction import Extractor
    from toolscript.services.knowledge.ingest import IngestKnowledge

    extractor = Extractor(language_model) if language_model else None
    return IngestKnowledge(store, index, embedder, FileBooks(), extractor)


def build_knowledge_import(
    store: KnowledgeStore, index: VectorIndex, embedder: Embedder | None, ingest: IngestKnowledge
) -> ImportKnowledge:
    """Builds what imports sources from JSON lines, never at the same time as the other writes the same source."""
    from toolscript.services.knowledge.transfer import ImportKnowledge

    return ImportKnowledge(store, index, embedder, ingest.locks)


def build_jobs(
    settings: Settings, store: JobStore, documents: IngestDocuments, knowledge: IngestKnowledge
) -> tuple[IngestJobs, JobRunner]:
    """Builds the jobs, and what works on them in this process."""
    from toolscript.app.files import describe_readers, open_document_reader
    from toolscript.services.ingest.file_work import IngestFile
    from toolscript.services.ingest.jobs import IngestJobs
    from toolscript.services.ingest.runner import JobRunner
    from toolscript.services.ingest.unchanged import UnchangedFiles

    place = platform.node()
    unchanged = UnchangedFiles(store, documents, knowledge, describe_readers)
    work = IngestFile(store, documents, knowledge, open_document_reader(), unchanged)
    runner = JobRunner(store, work, place=place)
    return IngestJobs(store, runner, unchanged, place=place, folders=settings.ingest_folders), runner
