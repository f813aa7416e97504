"""Workflows in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Row, Session
from toolscript.domain.programs import MAX_VERSIONS, Language, Workflow, WorkflowCase

_COLUMNS = (
    *("name", "version", "description", "language", "source", "parameters", "cases", "result"),
    *("is_read_only", "saved_at", "saved_by"),
)


class SqlWorkflows:
    """The workflows of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, workflow: Workflow) -> Workflow:
        def work(session: Session) -> Workflow:
            session.lock("workflows")
            (row,) = session.rows(
                "SELECT coalesce(max(version), 0) AS newest FROM workflows WHERE name = :name", name=workflow.name
            )
            saved = replace(workflow, version=row["newest"] + 1)
            values = asdict(saved) | {
                "language": saved.language.value,
                "parameters": dict(saved.parameters),
                "cases": {"cases": [asdict(case) for case in saved.cases]},
                "result": None if saved.result is None else dict(saved.result),
            }
            session.run(
                f"INSERT INTO workflows ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{c}' for c in _COLUMNS)})",
                **values,
            )
            session.run(
                "DELETE FROM workflows WHERE name = :name AND version <= :last",
                name=saved.name,
                last=saved.version - MAX_VERSIONS,
            )
            return saved

        return await self._database.write(work)

    async def list_newest(self) -> Sequence[Workflow]:
        newest = "SELECT name, max(version) FROM workflows GROUP BY name"
        return await self._read(f"WHERE (name, version) IN ({newest}) ORDER BY name")

    async def find(self, name: str, version: int | None = None) -> Workflow | None:
        which = "ORDER BY version DESC LIMIT 1" if version is None else "AND version = :version"
        given = {} if version is None else {"version": version}
        found = await self._read(f"WHERE name = :name {which}", name=name, **given)
        return found[0] if found else None

    async def list_versions(self, name: str) -> Sequence[Workflow]:
        return await self._read("WHERE name = :name ORDER BY version DESC", name=name)

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
        tuple(WorkflowCase(case["arguments"], case["expected"]) for case in row["cases"]["cases"]),
        row["result"],
        row["is_read_only"],
        row["version"],
        row["saved_at"],
        row["saved_by"],
    )
