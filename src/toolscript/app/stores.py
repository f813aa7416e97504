"""Everything that is stored, in one object: what the services of an application read and write."""

from __future__ import annotations

from dataclasses import dataclass

from toolscript.adapters.sql.access.approvals import SqlApprovals
from toolscript.adapters.sql.access.keys import SqlKeys
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.documents import SqlDocuments
from toolscript.adapters.sql.feedback import SqlFeedback
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.jobs import SqlJobs
from toolscript.adapters.sql.pins import SqlPins
from toolscript.adapters.sql.results import SqlResults
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.adapters.sql.workflows import SqlWorkflows
from toolscript.ports.access import ApprovalStore, KeyStore
from toolscript.ports.jobs import JobStore
from toolscript.ports.results import ResultStore
from toolscript.ports.stores import (
    DocumentStore,
    FeedbackStore,
    ItemStore,
    KnowledgeReader,
    KnowledgeStore,
    PinStore,
    SkillStore,
)
from toolscript.ports.workflows import WorkflowStore


@dataclass(frozen=True, kw_only=True, slots=True)
class Stores:
    """The stores of an application. Items, skills, feedback and pins are the catalogue, which the demo keeps apart."""

    items: ItemStore
    skills: SkillStore
    feedback: FeedbackStore
    pins: PinStore
    results: ResultStore
    workflows: WorkflowStore
    documents: DocumentStore
    keys: KeyStore
    approvals: ApprovalStore
    jobs: JobStore
    knowledge: KnowledgeReader
    """For searches: it only reads."""
    knowledge_writer: KnowledgeStore
    """For ingestion."""


def build_stores(
    database: Database, catalogue: Database, knowledge: KnowledgeReader, knowledge_writer: KnowledgeStore
) -> Stores:
    """The stores in the database, and those of the catalogue in another one."""
    return Stores(
        items=SqlItems(catalogue),
        skills=SqlSkills(catalogue),
        feedback=SqlFeedback(catalogue),
        pins=SqlPins(catalogue),
        results=SqlResults(database),
        workflows=SqlWorkflows(database),
        documents=SqlDocuments(database),
        keys=SqlKeys(database),
        approvals=SqlApprovals(database),
        jobs=SqlJobs(database),
        knowledge=knowledge,
        knowledge_writer=knowledge_writer,
    )
