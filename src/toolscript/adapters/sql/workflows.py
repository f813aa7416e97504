"""Workflows in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from toolscript.adapters.sql.database import Database, upsert
from toolscript.adapters.sql.session import Row
from toolscript.domain.programs import Language, Workflow


class SqlWorkflows:
    """The workflows of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, workflow: Workflow) -> None:
        row = asdict(workflow) | {
            "language": workflow.language.value,
            "parameters": dict(workflow.parameters),
            "result": None if workflow.result is None else dict(workflow.result),
        }
        await self._database.write(lambda session: upsert(session, "workflows", [row], ["name"]))

    async def list_all(self) -> Sequence[Workflow]:
        return await self._read("ORDER BY name")

    async def find(self, name: str) -> Workflow | None:
        found = await self._read("WHERE name = :name", name=name)
        return found[0] if found else None

    async def remove(self, name: str) -> bool:
        return await self._database.write(
            lambda session: session.run("DELETE FROM workflows WHERE name = :name", name=name) > 0
        )

    async def _read(self, where: str, **given: object) -> Sequence[Workflow]:
        rows = await self._database.read(lambda session: session.rows(f"SELECT * FROM workflows {where}", **given))
        return [_load(row) for row in rows]


def _load(row: Row) -> Workflow:
    return Workflow(
        row["name"],
        row["description"],
        Language(row["language"]),
        row["source"],
        row["parameters"],
        row["result"],
        row["is_read_only"],
        row["saved_at"],
        row["saved_by"],
    )
