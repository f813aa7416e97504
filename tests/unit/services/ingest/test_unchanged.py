"""Files that look as they did when they were last ingested are not read again; every other file is."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.databases import open_memory_database
from tests.fixtures.document_ingest import Ingest
from tests.fixtures.knowledge_ingest import Library
from toolscript.adapters.files.reader import FileBooks
from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.sql.jobs import SqlJobs
from toolscript.domain.documents import Document
from toolscript.domain.files.jobs import Job, JobTarget
from toolscript.domain.knowledge import Book
from toolscript.services.ingest.file_work import IngestFile
from toolscript.services.ingest.jobs import IngestJobs, IngestRequest
from toolscript.services.ingest.runner import JobRunner
from toolscript.services.ingest.unchanged import KEPT_SECONDS, SETTLE_SECONDS, UnchangedFiles

pytestmark = pytest.mark.req("F-01", "D-09")

TARGETS = pytest.mark.parametrize("target", JobTarget)


class Desk:
    """Ingests files, and notes which ones are read."""

    def __init__(self) -> None:
        self.store = SqlJobs(open_memory_database())
        self.documents, self.library = Ingest(), Library()
        self.read_names: list[str] = []
        self.warnings: tuple[str, ...] = ()
        self.readers = "readers 1"
        self.later = SETTLE_SECONDS + 1.0
        self._books = FileBooks(max_in_process_bytes=10_000)

    async def read(self, path: Path) -> Book:
        self.read_names.append(path.name)
        return replace(await self._books.read(path), warnings=self.warnings)

    async def ingest(self, folder: Path, target: JobTarget, *, as_one: bool = False, **details: Any) -> Job:
        """Ingests a folder as a new process would, and forgets which files were read before."""
        self.read_names = []
        await self.documents.open_all()
        library = Library(store=self.library.store, index=self.library.index, embedder=self.library.embedder)
        library.ingesting._reader = self
        unchanged = UnchangedFiles(
            self.store,
            self.documents.service,
            library.ingesting,
            lambda: self.readers,
            clock=lambda: time.time() + self.later,
        )
        work = IngestFile(self.store, self.documents.service, library.ingesting, self, unchanged)
        runner = JobRunner(self.store, work, place="here")
        jobs = IngestJobs(self.store, runner, unchanged, place="here")
        tenant = "acme" if target is JobTarget.DOCUMENTS else ""
        request = IngestRequest(target, tenant, details=details, as_one=as_one)
        job = await jobs.start(request, await jobs.find(request, [str(folder)], is_owner=True), is_owner=True)
        await runner.run_job(job.id)
        return await self.store.get_job(job.id)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.md").write_text(f"# Title {name}\n\nThe text of {name}.")
    return folder


def count(job: Job) -> tuple[int, int, int]:
    return job.counts.total.added, job.counts.total.changed, job.counts.total.unchanged


@TARGETS
async def test_unchanged_files_are_counted_and_not_read_again(desk: Desk, folder: Path, target: JobTarget) -> None:
    first = await desk.ingest(folder, target)
    assert (count(first), len(desk.read_names)) == ((3, 0, 0), 3)
    second = await desk.ingest(folder, target)
    assert (count(second), desk.read_names) == ((0, 0, 3), [])
    assert second.counts.total.passages == first.counts.total.passages
    assert second.counts.bytes_done == first.counts.bytes_done > 0


@TARGETS
async def test_of_changed_and_new_files_only_those_are_read(desk: Desk, folder: Path, target: JobTarget) -> None:
    await desk.ingest(folder, target)
    (folder / "b.md").write_text("# Title b\n\nAnother text.")
    (folder / "d.md").write_text("# Title d\n\nA new text.")
    job = await desk.ingest(folder, target)
    assert (count(job), sorted(desk.read_names)) == ((1, 1, 2), ["b.md", "d.md"])


@TARGETS
async def test_a_change_that_keeps_size_and_time_of_modification_is_seen(
    desk: Desk, folder: Path, target: JobTarget
) -> None:
    await desk.ingest(folder, target)
    before = (folder / "a.md").stat()
    (folder / "a.md").write_text("# Title a\n\nThe next of a.")
    os.utime(folder / "a.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (folder / "a.md").stat().st_size == before.st_size
    job = await desk.ingest(folder, target)
    assert (count(job), desk.read_names) == ((0, 1, 2), ["a.md"])


@TARGETS
async def test_another_file_in_its_place_is_seen(desk: Desk, folder: Path, target: JobTarget) -> None:
    other = folder.parent / "other.md"
    other.write_text("# Title a\n\nThe next of a.")
    os.utime(other, ns=((folder / "a.md").stat().st_mtime_ns,) * 2)
    await desk.ingest(folder, target)
    other.replace(folder / "a.md")
    job = await desk.ingest(folder, target)
    assert (count(job), desk.read_names) == ((0, 1, 2), ["a.md"])


@TARGETS
async def test_files_that_changed_just_before_they_were_read_are_read_once_more(
    desk: Desk, folder: Path, target: JobTarget
) -> None:
    desk.later = 0.0  # a second change within the step of the file system's clock would look the same
    await desk.ingest(folder, target)
    desk.later = SETTLE_SECONDS + 1.0
    await desk.ingest(folder, target)
    assert len(desk.read_names) == 3
    await desk.ingest(folder, target)
    assert desk.read_names == []


@TARGETS
async def test_a_file_of_a_later_century_is_not_read_each_time_and_its_changes_are_seen(
    desk: Desk, folder: Path, target: JobTarget
) -> None:
    os.utime(folder / "a.md", (4_291_747_200, 4_291_747_200))
    os.utime(folder / "b.md", (-2_145_916_800, -2_145_916_800))
    await desk.ingest(folder, target)
    await desk.ingest(folder, target)
    assert desk.read_names == []
    for name in ("a.md", "b.md"):
        text, times = (folder / name).read_text(), (folder / name).stat()
        (folder / name).write_text(text.swapcase())
        os.utime(folder / name, ns=(times.st_atime_ns, times.st_mtime_ns))
    job = await desk.ingest(folder, target)
    assert (count(job), sorted(desk.read_names)) == ((0, 2, 1), ["a.md", "b.md"])


@TARGETS
async def test_after_the_clock_was_set_back_nothing_is_missed(desk: Desk, folder: Path, target: JobTarget) -> None:
    desk.later = -3_600.0  # the files are from an hour that has yet to come
    await desk.ingest(folder, target)
    (folder / "a.md").write_text((folder / "a.md").read_text().swapcase())
    job = await desk.ingest(folder, target)
    assert (count(job), len(desk.read_names)) == ((0, 1, 2), 3)
    desk.later = SETTLE_SECONDS + 1.0
    await desk.ingest(folder, target)
    await desk.ingest(folder, target)
    assert desk.read_names == []


@TARGETS
async def test_files_are_read_again_by_other_readers_and_after_a_long_time(
    desk: Desk, folder: Path, target: JobTarget
) -> None:
    await desk.ingest(folder, target)
    desk.readers = "readers 2"
    await desk.ingest(folder, target)
    assert len(desk.read_names) == 3
    desk.later += KEPT_SECONDS + 60
    await desk.ingest(folder, target)
    assert len(desk.read_names) == 3


async def test_a_document_that_was_removed_or_replaced_is_made_again(desk: Desk, folder: Path) -> None:
    await desk.ingest(folder, JobTarget.DOCUMENTS)
    await desk.documents.service.delete("acme", ["a.md"])
    await desk.documents.service.put("acme", [Document("b.md", "By somebody else")])
    job = await desk.ingest(folder, JobTarget.DOCUMENTS)
    assert (count(job), sorted(desk.read_names)) == ((1, 1, 1), ["a.md", "b.md"])


async def test_a_source_that_was_removed_is_made_again(desk: Desk, folder: Path) -> None:
    await desk.ingest(folder, JobTarget.KNOWLEDGE)
    gone = await desk.library.ingesting.find("Title b")
    await desk.library.ingesting.remove(gone.id)
    job = await desk.ingest(folder, JobTarget.KNOWLEDGE)
    assert (count(job), desk.read_names) == ((1, 0, 2), ["b.md"])


@pytest.mark.parametrize(
    ("target", "details"),
    [(JobTarget.DOCUMENTS, {"metadata": {"team": "search"}}), (JobTarget.KNOWLEDGE, {"type": "paper"})],
)
async def test_other_details_are_applied(desk: Desk, folder: Path, target: JobTarget, details: dict[str, Any]) -> None:
    await desk.ingest(folder, target)
    assert count(await desk.ingest(folder, target, **details)) == (0, 3, 0)
    assert count(await desk.ingest(folder, target, **details)) == (0, 0, 3)
    assert desk.read_names == []


@TARGETS
async def test_what_an_index_has_lost_is_indexed_again(desk: Desk, folder: Path, target: JobTarget) -> None:
    await desk.ingest(folder, target)
    desk.documents = Ingest(store=desk.documents.store, index=MemoryIndex())
    desk.library.index = MemoryIndex()
    await desk.ingest(folder, target)
    assert len(desk.read_names) == 3
    await desk.ingest(folder, target)
    assert desk.read_names == []


@TARGETS
async def test_warnings_about_an_unchanged_file_are_repeated(desk: Desk, folder: Path, target: JobTarget) -> None:
    desk.warnings = ("2 of 9 pages are pictures without text",)
    await desk.ingest(folder, target)
    job = await desk.ingest(folder, target)
    files = await desk.store.list_files(job.id, limit=9)
    assert (desk.read_names, [file.outcome.warnings for file in files]) == ([], [desk.warnings] * 3)


async def test_lines_that_are_no_documents_are_reported_each_time(desk: Desk, folder: Path) -> None:
    (folder / "more.jsonl").write_text('{"id": "x", "text": "An x"}\n{"id": "y"}\n')
    for _ in range(2):
        job = await desk.ingest(folder, JobTarget.DOCUMENTS)
        problems = [file.outcome.warnings for file in await desk.store.list_files(job.id, limit=9)]
        assert problems == [(), (), (), ("line 2: text is missing or not a string",)]
    assert count(job) == (0, 0, 4)


async def test_a_book_of_many_pages_is_read_again_when_a_page_changes(desk: Desk, folder: Path) -> None:
    await desk.ingest(folder, JobTarget.KNOWLEDGE, as_one=True)
    assert count(await desk.ingest(folder, JobTarget.KNOWLEDGE, as_one=True)) == (0, 0, 1)
    assert desk.read_names == []
    (folder / "b.md").write_text("# Title b\n\nAnother text.")
    assert count(await desk.ingest(folder, JobTarget.KNOWLEDGE, as_one=True)) == (0, 1, 0)
    assert len(desk.read_names) == 3
