"""Ingest jobs in SQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Row, Session, load
from toolscript.domain.errors import Conflict, NotFound
from toolscript.domain.files.jobs import FileOutcome, FileStamp, FileState, Job, JobCounts, JobFile, JobTarget
from toolscript.ports.jobs import FileKey

_JOB_COLUMNS = ("id", "target", "owner", "details", "created_at", "place", "skipped", "is_cancelled")
_FILE_COLUMNS = ("job_id", "number", "name", "path", "pages", "size", "state", "attempts", "steps_done", "steps")
_SUMS = ("added", "changed", "unchanged", "removed", "passages")
_OUTCOME_COLUMNS = (*_SUMS, "title", "problem", "warnings")
_ALL_FILE_COLUMNS = (*_FILE_COLUMNS, *_OUTCOME_COLUMNS, "leased_by", "leased_until")
_STAMP_COLUMNS = ("target", "owner", "path", "state", "made", "read_at")
_STAMPED_OUTCOME = ("passages", "title", "warnings")
_OF_OWNER = "WHERE target = :target AND owner = :owner"
_OPEN = "state IN ('waiting', 'running')"
_KEY = "job_id || '/' || number"
_OF_FILE = "WHERE job_id = :job_id AND number = :number"
_OF_PLACE = "SELECT id FROM jobs WHERE place = '' OR place = :place"
_NO_LEASE = {"leased_by": "", "leased_until": 0.0}


class SqlJobs:
    """The jobs of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, job: Job) -> None:
        row = {name: getattr(job, name) for name in _JOB_COLUMNS}
        row |= {"target": job.target.value, "details": dict(job.details), "skipped": dict(job.skipped)}
        await self._database.write(lambda session: session.run(_insert("jobs", _JOB_COLUMNS), **row))

    async def add_files(
        self, job_id: str, files: Sequence[JobFile], contents: Mapping[int, bytes] | None = None
    ) -> None:
        rows = [{**_to_row(file), **_NO_LEASE} for file in files]
        uploads = [{"job_id": job_id, "number": n, "content": content} for n, content in (contents or {}).items()]

        def work(session: Session) -> None:
            if _require_job(session, job_id)["is_cancelled"]:
                raise Conflict(
                    f"the job {job_id} is cancelled: start another one, or resume it", details={"job": job_id}
                )
            session.run_many(_insert("job_files", _ALL_FILE_COLUMNS), rows)
            if uploads:
                session.run_many(_insert("job_contents", tuple(uploads[0])), uploads)

        await self._database.write(work)

    async def get_job(self, job_id: str) -> Job:
        def work(session: Session) -> Job:
            return _with_counts(session, [_load_job(_require_job(session, job_id))])[0]

        return await self._database.read(work)

    async def list_jobs(self, target: JobTarget, owner: str, *, limit: int) -> list[Job]:
        def work(session: Session) -> list[Job]:
            rows = session.rows(
                "SELECT * FROM jobs WHERE target = :target AND owner = :owner "
                "ORDER BY created_at DESC, id LIMIT :limit",
                target=target.value,
                owner=owner,
                limit=limit,
            )
            return _with_counts(session, [_load_job(row) for row in rows])

        return await self._database.read(work)

    async def list_files(
        self, job_id: str, *, after: int = -1, limit: int, states: Sequence[FileState] | None = None
    ) -> list[JobFile]:
        def work(session: Session) -> list[JobFile]:
            where = "" if states is None else f" AND {session.among('state', 'states')}"
            wanted = {} if states is None else {"states": [state.value for state in states]}
            rows = session.rows(
                f"SELECT * FROM job_files WHERE job_id = :job_id AND number > :after{where} "
                "ORDER BY number LIMIT :limit",
                job_id=job_id,
                after=after,
                limit=limit,
                **wanted,
            )
            return [_load_file(row) for row in rows]

        return await self._database.read(work)

    async def claim(
        self,
        worker: str,
        place: str,
        *,
        limit: int,
        now: float,
        until: float,
        job_id: str | None = None,
        without: Collection[FileKey] = (),
    ) -> list[tuple[Job, JobFile]]:
        where = f"job_id IN ({_OF_PLACE})" if job_id is None else "job_id = :job_id"
        only: dict[str, Any] = {"place": place} if job_id is None else {"job_id": job_id}
        only["without"] = [f"{other}/{number}" for other, number in without]

        def work(session: Session) -> list[tuple[Job, JobFile]]:
            rows = session.rows(
                f"SELECT * FROM job_files WHERE {_OPEN} AND leased_until <= :now AND {where} "
                f"AND NOT {session.among(_KEY, 'without')} "
                f"ORDER BY number, job_id LIMIT :limit {session.dialect.skip_locked}",
                now=now,
                limit=limit,
                **only,
            )
            claimed = [
                replace(file, state=FileState.RUNNING, attempts=file.attempts + 1, steps_done=0, steps=0)
                for file in map(_load_file, rows)
            ]
            for file in claimed:
                _update(session, file, leased_by=worker, leased_until=until)
            jobs = {each: _load_job(_require_job(session, each)) for each in {file.job_id for file in claimed}}
            return [(jobs[file.job_id], file) for file in claimed]

        return await self._database.write(work)

    async def renew(self, worker: str, steps: Mapping[FileKey, tuple[int, int]], *, until: float) -> set[FileKey]:
        def work(session: Session) -> set[FileKey]:
            return {
                (job_id, number)
                for (job_id, number), (done, total) in steps.items()
                if session.run(
                    f"UPDATE job_files SET leased_until = :until, steps_done = :done, steps = :total {_OF_FILE} "
                    "AND leased_by = :worker AND state = 'running'",
                    until=until,
                    done=done,
                    total=total,
                    job_id=job_id,
                    number=number,
                    worker=worker,
                )
            }

        return await self._database.write(work)

    async def finish(self, worker: str, file: JobFile) -> bool:
        def work(session: Session) -> bool:
            is_own = _update(session, file, owned_by=worker, **_NO_LEASE)
            if is_own and file.state is FileState.DONE:
                session.run(f"DELETE FROM job_contents {_OF_FILE}", job_id=file.job_id, number=file.number)
            return is_own

        return await self._database.write(work)

    async def postpone(self, worker: str, file: JobFile, *, until: float) -> None:
        waiting = replace(file, state=FileState.WAITING)
        await self._database.write(
            lambda session: _update(session, waiting, owned_by=worker, leased_by="", leased_until=until)
        )

    async def release(self, *, worker: str | None = None, place: str | None = None) -> None:
        where = f"job_id IN ({_OF_PLACE})" if worker is None else "leased_by = :worker"
        parameters = {"place": place} if worker is None else {"worker": worker}
        attempts = "attempts" if worker is None else "attempts - 1"
        sql = (
            f"UPDATE job_files SET state = 'waiting', attempts = {attempts}, leased_by = '', leased_until = 0 "
            f"WHERE state = 'running' AND {where}"
        )
        await self._database.write(lambda session: session.run(sql, **parameters))

    async def read_content(self, job_id: str, number: int) -> bytes:
        sql = f"SELECT content FROM job_contents {_OF_FILE}"
        rows = await self._database.read(lambda session: session.rows(sql, job_id=job_id, number=number))
        if not rows:
            raise NotFound(f"the job {job_id} has no content of file {number}", details={"job": job_id})
        return bytes(rows[0]["content"])

    async def cancel(self, job_id: str) -> int:
        def work(session: Session) -> int:
            _require_job(session, job_id)
            session.run("UPDATE jobs SET is_cancelled = :yes WHERE id = :job_id", yes=True, job_id=job_id)
            return session.run(
                "UPDATE job_files SET state = 'cancelled', leased_by = '', leased_until = 0 "
                f"WHERE job_id = :job_id AND {_OPEN}",
                job_id=job_id,
            )

        return await self._database.write(work)

    async def resume(self, job_id: str) -> int:
        def work(session: Session) -> int:
            _require_job(session, job_id)
            session.run("UPDATE jobs SET is_cancelled = :no WHERE id = :job_id", no=False, job_id=job_id)
            return session.run(
                "UPDATE job_files SET state = 'waiting', attempts = 0, problem = '' "
                "WHERE job_id = :job_id AND state IN ('cancelled', 'failed')",
                job_id=job_id,
            )

        return await self._database.write(work)

    async def remove_old(self, before: float) -> int:
        sql = (
            "DELETE FROM jobs WHERE created_at < :before AND NOT EXISTS "
            f"(SELECT 1 FROM job_files WHERE job_files.job_id = jobs.id AND {_OPEN})"
        )
        return await self._database.write(lambda session: session.run(sql, before=before))

    async def save_stamp(self, stamp: FileStamp) -> None:
        row = {name: getattr(stamp, name) for name in _STAMP_COLUMNS}
        row |= {name: getattr(stamp.outcome, name) for name in _STAMPED_OUTCOME}
        row |= {"target": stamp.target.value, "made": dict(stamp.made)}
        key = {name: row[name] for name in ("target", "owner", "path")}

        def work(session: Session) -> None:
            session.run(f"DELETE FROM file_stamps {_OF_OWNER} AND path = :path", **key)
            session.run(_insert("file_stamps", tuple(row)), **row)

        await self._database.write(work)

    async def get_stamps(self, target: JobTarget, owner: str, paths: Sequence[str]) -> dict[str, FileStamp]:
        def work(session: Session) -> dict[str, FileStamp]:
            rows = session.rows(
                f"SELECT * FROM file_stamps {_OF_OWNER} AND {session.among('path', 'paths')}",
                target=target.value,
                owner=owner,
                paths=list(paths),
            )
            return {row["path"]: _load_stamp(row) for row in rows}

        return await self._database.read(work)

    async def remove_stamps(self, before: float) -> None:
        sql = "DELETE FROM file_stamps WHERE read_at < :before"
        await self._database.write(lambda session: session.run(sql, before=before))


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})"


def _require_job(session: Session, job_id: str) -> Row:
    rows = session.rows("SELECT * FROM jobs WHERE id = :job_id", job_id=job_id)
    if not rows:
        raise NotFound(f"no such job: {job_id!r}", details={"job": job_id})
    return rows[0]


def _update(session: Session, file: JobFile, *, owned_by: str | None = None, **lease: Any) -> bool:
    """Writes everything of a file that changes; with `owned_by` only if this worker has leased it."""
    row = {
        name: value for name, value in _to_row(file).items() if name not in {"name", "path", "pages", "size"}
    } | lease
    changes = ", ".join(f"{name} = :{name}" for name in row if name not in {"job_id", "number"})
    owned = "" if owned_by is None else " AND leased_by = :owned_by AND state = 'running'"
    more = {} if owned_by is None else {"owned_by": owned_by}
    return bool(session.run(f"UPDATE job_files SET {changes} {_OF_FILE}{owned}", **row, **more))


def _to_row(file: JobFile) -> dict[str, Any]:
    row = {name: getattr(file, name) for name in _FILE_COLUMNS} | asdict(file.outcome)
    return row | {"state": file.state.value}


def _load_file(row: Row) -> JobFile:
    return load(JobFile, {**row, "state": FileState(row["state"]), "outcome": load(FileOutcome, row)})


def _load_stamp(row: Row) -> FileStamp:
    outcome = FileOutcome(passages=row["passages"], title=row["title"], warnings=tuple(row["warnings"]))
    return load(FileStamp, {**row, "target": JobTarget(row["target"]), "outcome": outcome})


def _load_job(row: Row) -> Job:
    return Job(**{**row, "target": JobTarget(row["target"])})


def _with_counts(session: Session, jobs: Sequence[Job]) -> list[Job]:
    sums = ", ".join(f"SUM({name}) AS {name}" for name in _SUMS)
    rows = session.rows(
        f"SELECT job_id, state, COUNT(*) AS files, SUM(size) AS bytes, {sums} FROM job_files "
        f"WHERE {session.among('job_id', 'ids')} GROUP BY job_id, state",
        ids=[job.id for job in jobs],
    )
    return [replace(job, counts=_add_up([row for row in rows if row["job_id"] == job.id])) for job in jobs]


def _add_up(rows: Sequence[Row]) -> JobCounts:
    sums: dict[str, Any] = {name: sum(int(row[name]) for row in rows) for name in _SUMS}
    closed = [row for row in rows if row["state"] not in {FileState.WAITING, FileState.RUNNING}]
    return JobCounts(
        {FileState(row["state"]): int(row["files"]) for row in rows},
        FileOutcome(**sums),
        bytes=sum(int(row["bytes"]) for row in rows),
        bytes_done=sum(int(row["bytes"]) for row in closed),
    )
