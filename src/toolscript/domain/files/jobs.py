"""Ingest jobs: files that become documents or knowledge, and how far that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class JobTarget(StrEnum):
    """What files become."""

    DOCUMENTS = "documents"
    """Documents of a tenant."""
    KNOWLEDGE = "knowledge"
    """Sources that are cited."""


class FileState(StrEnum):
    """How far a file of a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobState(StrEnum):
    """How far a job is."""

    RUNNING = "running"
    """Some of its files wait or are being worked on."""
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of a file. A file of documents may hold many; a file of knowledge is one source."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    """Documents that an earlier version of the file had."""
    passages: int = 0
    title: str = ""
    problem: str = ""
    """Why the file, or the last attempt, failed."""
    warnings: tuple[str, ...] = ()
    """What could not be read in a file that was read otherwise."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """One file of a job, or several that become one source together."""

    job_id: str
    number: int
    name: str
    """The id of a document made from it; for knowledge the path that identifies the source."""
    path: str = ""
    """Where gateways read it; empty for an uploaded file, whose content is in the store."""
    pages: tuple[str, ...] = ()
    """The files, in reading order, that become one source. `path` is their folder then."""
    size: int = 0
    state: FileState = FileState.WAITING
    attempts: int = 0
    steps_done: int = 0
    steps: int = 0
    """How much of the current attempt is done, in passages or pages; 0 of 0 before that is known."""
    outcome: FileOutcome = FileOutcome()


@dataclass(frozen=True, slots=True)
class FileStamp:
    """How a file was when it was last ingested, and what was made of it: it is read again when either changes."""

    target: JobTarget
    owner: str
    path: str
    state: str
    """A digest of its size, its times, and how it was read."""
    made: Mapping[str, str]
    """The digests of the documents, or of the source, by id."""
    outcome: FileOutcome
    read_at: float


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The files of a job by state, and what became of them."""

    files: Mapping[FileState, int] = field(default_factory=dict)
    total: FileOutcome = FileOutcome()
    """The sums; without texts."""
    bytes: int = 0
    bytes_done: int = 0

    @property
    def is_open(self) -> bool:
        """Whether files wait or are being worked on."""
        return bool(self.files.get(FileState.WAITING) or self.files.get(FileState.RUNNING))


@dataclass(frozen=True, slots=True)
class Job:
    """Files that were given together."""

    id: str
    target: JobTarget
    owner: str
    """The tenant whose documents the files become; empty for knowledge."""
    details: Mapping[str, Any]
    """For documents the `metadata` of all; for knowledge what a person says of the source."""
    created_at: float
    place: str = ""
    """The machine whose gateways can read its paths; empty if every gateway can read its files."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """How many files were left out, by the reason."""
    is_cancelled: bool = False
    counts: JobCounts = JobCounts()

    @property
    def state(self) -> JobState:
        if self.is_cancelled:
            return JobState.CANCELLED
        return JobState.RUNNING if self.counts.is_open else JobState.DONE
