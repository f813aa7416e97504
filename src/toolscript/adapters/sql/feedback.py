"""Feedback in SQL: the newest requests that each tool served or is wrong for, and the steps of the tools' vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from toolscript.adapters.sql.catalogue_version import write_catalogue
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Row, Session, load
from toolscript.domain.feedback import Step, Verdict
from toolscript.domain.search import Vector

T = TypeVar("T", Verdict, Step)


class SqlFeedback:
    """The feedback of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_verdict(
        self,
        verdict: Verdict,
        *,
        max_per_item: int,
        max_per_caller: int,
        max_of_caller: int,
        overrules: bool = True,
    ) -> None:
        def work(session: Session) -> None:
            session.run(
                "INSERT INTO feedback_requests "
                "(item_id, digest, request, caller, recorded_at, model, vector, is_right) "
                "VALUES (:item_id, :digest, :request, :caller, :recorded_at, :model, :vector, :is_right) "
                "ON CONFLICT (item_id, digest, caller) "
                "DO UPDATE SET recorded_at = excluded.recorded_at, is_right = excluded.is_right"
                f"{'' if overrules else ' WHERE feedback_requests.is_right'}",
                item_id=verdict.item_id,
                digest=verdict.digest,
                request=verdict.request,
                caller=verdict.caller,
                recorded_at=verdict.recorded_at,
                model=verdict.model,
                vector=_pack(verdict.vector),
                is_right=verdict.is_right,
            )
            _keep_newest(session, max_per_caller, item_id=verdict.item_id, caller=verdict.caller)
            _keep_newest(session, max_per_item, item_id=verdict.item_id)
            _keep_newest(session, max_of_caller, caller=verdict.caller)

        await self._database.write(work)

    async def remove_verdict(self, verdict: Verdict) -> bool:
        def work(session: Session) -> bool:
            where = "item_id = :item AND digest = :digest AND caller = :caller"
            given = {"item": verdict.item_id, "digest": verdict.digest, "caller": verdict.caller}
            return session.run(f"DELETE FROM feedback_requests WHERE {where}", **given) > 0

        return await self._database.write(work)

    async def remove_caller(self, caller: str, item_ids: Collection[str] | None = None) -> int:
        def work(session: Session) -> int:
            where, given = _select(session, item_ids)
            return session.run(
                f"DELETE FROM feedback_requests WHERE caller = :caller AND {where}", caller=caller, **given
            )

        return await self._database.write(work)

    async def get_verdicts(self, item_ids: Collection[str] | None = None) -> list[Verdict]:
        found = await self._read(Verdict, "feedback_requests", item_ids)
        return sorted(found, key=lambda v: (v.item_id, v.recorded_at, v.request))

    async def save_vectors(self, model: str, vectors: Mapping[str, Vector]) -> None:
        rows = [{"digest": digest, "model": model, "vector": _pack(vector)} for digest, vector in vectors.items()]
        statement = "UPDATE feedback_requests SET model = :model, vector = :vector WHERE digest = :digest"
        await self._database.write(lambda session: session.run_many(statement, rows))

    async def get_steps(self, item_ids: Collection[str] | None = None) -> dict[str, Step]:
        return {step.item_id: step for step in await self._read(Step, "feedback_steps", item_ids)}

    async def replace_steps(self, steps: Sequence[Step]) -> None:
        columns = ("item_id", "model", "item_digest", "stamp", "successes", "cosine", "refusal")
        rows = [{**{c: getattr(step, c) for c in columns}, "vector": _pack(step.vector)} for step in steps]
        names = [*columns, "vector"]

        def work(session: Session) -> None:
            session.run("DELETE FROM feedback_steps")
            session.run_many(
                f"INSERT INTO feedback_steps ({', '.join(names)}) VALUES ({', '.join(f':{n}' for n in names)})", rows
            )

        await write_catalogue(self._database, work)

    async def reset(self, item_ids: Collection[str] | None = None) -> int:
        def work(session: Session) -> int:
            where, given = _select(session, item_ids)
            session.run(f"DELETE FROM feedback_steps WHERE {where}", **given)
            return session.run(f"DELETE FROM feedback_requests WHERE {where}", **given)

        return await write_catalogue(self._database, work)

    async def _read(self, kind: type[T], table: str, item_ids: Collection[str] | None) -> list[T]:
        def work(session: Session) -> list[T]:
            where, given = _select(session, item_ids)
            # Loaded in the thread of the database: ten thousand of them would stop everything else for 0.1 s.
            return [_load(kind, row) for row in session.rows(f"SELECT * FROM {table} WHERE {where}", **given)]

        return await self._database.read(work)


def _select(session: Session, item_ids: Collection[str] | None) -> tuple[str, dict[str, Any]]:
    if item_ids is None:
        return "TRUE", {}
    return session.among("item_id", "ids"), {"ids": sorted(item_ids)}


def _keep_newest(session: Session, count: int, **same: str) -> None:
    """Deletes all but the newest of the verdicts with these values."""
    where = " AND ".join(f"{column} = :{column}" for column in same)
    (row,) = session.rows(f"SELECT count(*) AS count FROM feedback_requests WHERE {where}", **same)
    if row["count"] > count:
        columns = "item_id, digest, caller"
        older = f"SELECT {columns} FROM feedback_requests WHERE {where} ORDER BY recorded_at, digest LIMIT :surplus"
        surplus = row["count"] - count
        session.run(f"DELETE FROM feedback_requests WHERE ({columns}) IN ({older})", **same, surplus=surplus)


def _pack(vector: Vector | None) -> bytes | None:
    return None if vector is None else np.asarray(vector, dtype="<f4").tobytes()


def _load(kind: Any, row: Row) -> Any:
    packed = row["vector"]
    vector = None if packed is None else np.frombuffer(packed, dtype="<f4").astype(np.float32)
    return load(kind, {**row, "vector": vector})
