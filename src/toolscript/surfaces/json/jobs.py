"""Responses about ingest jobs as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolscript.domain.files.jobs import Job, JobFile

FindSteps = Callable[["JobFile"], tuple[int, int]]


def build_job_response(job: Job) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/jobs/{id}`."""
    counts, total = job.counts, job.counts.total
    return {
        "id": job.id,
        "as": job.target.value,
        "state": job.state.value,
        "created": datetime.fromtimestamp(job.created_at, UTC).isoformat(timespec="seconds"),
        "files": {"total": sum(counts.files.values())} | {state.value: n for state, n in sorted(counts.files.items())},
        "bytes": counts.bytes,
        "bytes_done": counts.bytes_done,
        "added": total.added,
        "changed": total.changed,
        "unchanged": total.unchanged,
        "removed": total.removed,
        "passages": total.passages,
        "skipped": dict(job.skipped),
    }


def build_job_list_response(jobs: Sequence[Job]) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/jobs`."""
    return {"jobs": [build_job_response(job) for job in jobs]}


def build_job_files_response(files: Sequence[JobFile], find_steps: FindSteps, *, limit: int) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/jobs/{id}/files` from one file more than the limit."""
    shown = files[:limit]
    return {
        "files": [_build_file(file, find_steps) for file in shown],
        "next": shown[-1].number if len(files) > limit else None,
    }


def _build_file(file: JobFile, find_steps: FindSteps) -> dict[str, Any]:
    outcome, (done, total) = file.outcome, find_steps(file)
    return {
        "number": file.number,
        "name": file.name,
        "path": file.path or None,
        "bytes": file.size,
        "state": file.state.value,
        "attempts": file.attempts,
        "steps_done": done,
        "steps": total,
        "added": outcome.added,
        "changed": outcome.changed,
        "unchanged": outcome.unchanged,
        "removed": outcome.removed,
        "passages": outcome.passages,
        "title": outcome.title,
        "problem": outcome.problem or None,
        "warnings": list(outcome.warnings),
    }
