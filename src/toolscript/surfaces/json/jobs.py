"""Responses about ingest jobs as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, NotRequired, TypedDict, cast

from toolscript.domain.files.jobs import FileState, Job, JobFile, JobState, JobTarget
from toolscript.surfaces.json.definitions import format_time

FindSteps = Callable[[JobFile], tuple[int, int]]


class JobFileCounts(TypedDict):
    """The number of files, in all and by state; a state without files is left out."""

    total: int
    waiting: NotRequired[int]
    running: NotRequired[int]
    done: NotRequired[int]
    failed: NotRequired[int]
    cancelled: NotRequired[int]


_Target = TypedDict("_Target", {"as": Annotated[JobTarget, "What the files become."]})


class JobResponse(_Target, TypedDict):
    """An ingest job. Each file can be found as soon as it is done."""

    id: str
    state: JobState
    created: str
    files: JobFileCounts
    bytes: Annotated[int, "Size of all files."]
    bytes_done: Annotated[int, "Size of the files that are no longer waiting or running."]
    added: Annotated[int, "Documents or sources that are new."]
    changed: int
    unchanged: int
    removed: Annotated[int, "Documents that an earlier version of a file had."]
    passages: Annotated[int, "Chunks of the sources (knowledge)."]
    skipped: Annotated[dict[str, int], "How many files and folders were left out, by the reason."]


class JobListResponse(TypedDict):
    """Jobs, newest first."""

    jobs: list[JobResponse]


class JobFileResponse(TypedDict):
    """A file of a job."""

    number: int
    name: str
    path: Annotated[str | None, "Where the gateway reads it; null for an uploaded file."]
    bytes: int
    state: FileState
    attempts: int
    steps_done: Annotated[int, "How much of `steps` is done: documents, pages or passages."]
    steps: int
    added: int
    changed: int
    unchanged: int
    removed: int
    passages: int
    title: Annotated[str, "Title of the source (knowledge)."]
    problem: Annotated[str | None, "Why it, or the last attempt, failed."]
    warnings: Annotated[list[str], "What could not be read in a file that was read otherwise."]


class JobFileListResponse(TypedDict):
    """Files of a job, by number."""

    files: list[JobFileResponse]
    next: Annotated[int | None, "`after` of the next page; null at the end."]


def build_job_response(job: Job) -> JobResponse:
    """Builds the response of `GET /api/v1/jobs/{id}`."""
    counts, total = job.counts, job.counts.total
    files = {"total": sum(counts.files.values())} | {state.value: n for state, n in sorted(counts.files.items())}
    return {
        "id": job.id,
        "as": job.target,
        "state": job.state,
        "created": format_time(job.created_at),
        "files": cast("JobFileCounts", files),
        "bytes": counts.bytes,
        "bytes_done": counts.bytes_done,
        "added": total.added,
        "changed": total.changed,
        "unchanged": total.unchanged,
        "removed": total.removed,
        "passages": total.passages,
        "skipped": dict(job.skipped),
    }


def build_job_list_response(jobs: Sequence[Job]) -> JobListResponse:
    """Builds the response of `GET /api/v1/jobs`."""
    return {"jobs": [build_job_response(job) for job in jobs]}


def build_job_files_response(files: Sequence[JobFile], find_steps: FindSteps, *, limit: int) -> JobFileListResponse:
    """Builds the response of `GET /api/v1/jobs/{id}/files` from one file more than the limit."""
    shown = files[:limit]
    return {
        "files": [_build_file(file, find_steps) for file in shown],
        "next": shown[-1].number if len(files) > limit else None,
    }


def _build_file(file: JobFile, find_steps: FindSteps) -> JobFileResponse:
    outcome, (done, total) = file.outcome, find_steps(file)
    return {
        "number": file.number,
        "name": file.name,
        "path": file.path or None,
        "bytes": file.size,
        "state": file.state,
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
