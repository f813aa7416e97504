"""The store of workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolscript.domain.programs import Workflow


class WorkflowStore(Protocol):
    """Keeps workflows by their names.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.workflows import SqlWorkflows
    >>> from toolscript.domain.programs import Language
    >>> async def save_twice():
    ...     database = Database("sqlite://")
    ...     store = SqlWorkflows(database)
    ...     for source in ("1", "2"):
    ...         await store.save(Workflow("count", "Counts.", Language.PYTHON, source))
    ...     workflows = await store.list_all()
    ...     await database.close()
    ...     return [(workflow.name, workflow.source) for workflow in workflows]
    >>> asyncio.run(save_twice())
    [('count', '2')]
    """

    async def save(self, workflow: Workflow) -> None:
        """Saves a workflow, in place of the one with its name."""

    async def list_all(self) -> Sequence[Workflow]:
        """All workflows, by name."""

    async def find(self, name: str) -> Workflow | None:
        """The workflow of that name, if there is one."""

    async def remove(self, name: str) -> bool:
        """Removes a workflow; whether there was one."""
