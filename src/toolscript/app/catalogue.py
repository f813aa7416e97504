"""Builds what writes the catalogue of tools and skills, and decides who sees what of it."""

from __future__ import annotations

from toolscript.adapters.models.vector_cache_files import EmbeddingFiles
from toolscript.app.access import AccessServices
from toolscript.app.stores import Stores
from toolscript.domain.servers import TrustPolicy
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder, LanguageModel
from toolscript.ports.stores import CatalogueVersion
from toolscript.retrieval.capabilities import load_capabilities
from toolscript.retrieval.retriever import Retriever
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.sync import Sync
from toolscript.services.catalogue.tool_steps import ToolSteps
from toolscript.services.catalogue.visibility import Visibility
from toolscript.services.skills.embedding_classifier import EmbeddingClassifier
from toolscript.services.skills.llm_classifier import LlmClassifier
from toolscript.services.skills.proposals import ProposeSkills
from toolscript.services.skills.skills import Skills
from toolscript.services.trust.definition_reader import DefinitionReader
from toolscript.services.trust.screening import Screening
from toolscript.settings import Settings


class CatalogueServices:
    """The use cases of `services/catalogue`, `services/skills` and `services/trust`."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        index: VectorIndex,
        embedder: Embedder | None,
        language_model: LanguageModel | None,
        version: CatalogueVersion | None,
        access: AccessServices,
    ) -> None:
        """Raises Invalid for unusable capabilities."""
        self.retriever = retriever = Retriever(embedder, index)
        self.snapshots = CatalogueSnapshots(
            stores.items,
            index,
            retriever.similarity,
            steps=ToolSteps(stores.feedback, retriever.model or "", is_on=settings.feedback),
            capabilities=load_capabilities(settings.search_capabilities),
        )
        self.sync = Sync(
            stores.items,
            stores.skills,
            index,
            embedder,
            cache=None if settings.search_no_cache else EmbeddingFiles(settings.data / "cache" / "embeddings"),
            classifier=EmbeddingClassifier(embedder) if embedder else None,
            refiner=LlmClassifier(language_model) if language_model else None,
            on_change=self.snapshots.advance,
            version=version,
            configuration=str(settings.config.expanduser().absolute()) if settings.config else "",
            feedback=stores.feedback,
            learns=settings.feedback,
            screening=Screening(stores.pins, stores.items, policy=TrustPolicy(settings.quarantine)),
            reader=DefinitionReader(language_model) if language_model else None,
        )
        self.visibility = visibility = Visibility(
            access.profiles.find, self.snapshots, stores.items, read_only=settings.read_only
        )
        self.quarantine = self.sync.open_review(stores.pins)
        self.skills = Skills(
            stores.items,
            stores.skills,
            self.sync,
            find_view=visibility.find_view,
            count_by_skill=visibility.count_by_skill,
        )
        self.propose_skills = ProposeSkills(stores.items, stores.skills, index, embedder, language_model)
