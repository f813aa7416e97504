"""The store of workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolscript.domain.programs import Workflow


class WorkflowStore(Protocol):
    """Keeps the newest MAX_VERSIONS versions of every workflow. The newest one counts.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.workflows import SqlWorkflows
    >>> from toolscript.domain.programs import Language
    >>> async def save_twice():
    ...     database = Database("sqlite://")
    ...     store = SqlWorkflows(database)
    ...     for source in ("1", "2"):
    ...         await store.save(Workflow("count", "Counts.", Language.PYTHON, source))
    ...     newest = await store.list_newest()
    ...     await database.close()
    ...     return [(workflow.version, workflow.source) for workflow in newest]
    >>> asyncio.run(save_twice())
    [(2, '2')]
    """

    async def save(self, workflow: Workflow) -> Workflow:
        """Saves the workflow as the next version of its name; returns it with its number. The oldest version goes when
        there are too many."""

    async def list_newest(self) -> Sequence[Workflow]:
        """The newest version of every workflow, by name."""

    async def find(self, name: str, version: int | None = None) -> Workflow | None:
        """A version of a workflow; the newest one by default. None if there is none."""

    async def list_versions(self, name: str) -> Sequence[Workflow]:
        """Every kept version of a workflow, the newest first; none if there is no such workflow."""

    async def remove(self, name: str) -> bool:
        """Removes all versions of a workflow; whether there was one."""
