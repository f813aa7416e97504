"""`toolscript ingest`: adds files and folders to a tenant's documents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.surfaces.cli.client.documents import Progress, TenantDocuments
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.files.documents import ENDINGS, SOURCE, DocumentFileReader
from toolscript.surfaces.cli.files.finder import FileFinder, FoundFile, SkippedFile, normalize
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import show_bar
from toolscript.surfaces.cli.terminal.text import print_answer
from toolscript.surfaces.cli.terminal.values import parse_pairs

MAX_BATCH_DOCUMENTS = 256
MAX_BATCH_CHARACTERS = 4_000_000
PAGE_SIZE = 1000
OUTCOMES = ("added", "changed", "unchanged")


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@options.tenant
@options.include
@options.exclude
@click.option(
    "--metadata",
    multiple=True,
    metavar="KEY=VALUE",
    help="Metadata of all documents: a number, true or false, or else text; repeatable.",
)
@click.option(
    "--prune", is_flag=True, help=f"Remove documents that were ingested from these paths (see {SOURCE}) and are gone."
)
@options.data_dir
@options.as_json
def ingest(names: tuple[str, ...], metadata: tuple[str, ...], prune: bool, as_json: bool, **given: Any) -> None:
    """Add files and folders to the documents that can be searched.

    Reads Markdown, reStructuredText, HTML, PDF, DOCX, EPUB and text files, .json and .jsonl (objects with id, title,
    text, metadata), and any other text file that is named itself. The id of a document is its path below the folder;
    its metadata has path, extension and modified, unless the file sets them, and source_path. Run it again after
    changes: unchanged documents are left alone. Files that cannot be read are skipped and reported; exits with 2 when
    all are.

    \b
    toolscript ingest notes/
    toolscript ingest notes/ --prune --metadata team=search --exclude 'drafts/*'
    toolscript ingest corpus.jsonl --tenant acme
    """
    finder = FileFinder(ENDINGS, given.pop("include"), given.pop("exclude"))
    settings = read_settings(given)
    more = parse_pairs(metadata, "--metadata")
    if SOURCE in more:
        raise Invalid(f"invalid --metadata {SOURCE}: it is the file that a document was read from; use another name")
    paths = finder.check_paths(names)
    files = finder.find_files(paths)
    if prune and finder.skipped:
        first = finder.skipped[0]
        raise Invalid(
            f"cannot read {first.place}: {first.problem}. Nothing was removed, because it may be unreachable only for "
            "now: run the command without --prune, or without that path",
            details={"field": "--prune"},
        )
    if not files and not prune:
        finder.skipped += [SkippedFile(str(path), "no readable files") for path in paths if path.is_dir()]

    async def run(session: CommandSession) -> dict[str, Any]:
        from toolscript.app.files import open_document_reader

        work = _Ingestion(
            TenantDocuments(session), DocumentFileReader(open_document_reader().read, more), finder.skipped
        )
        with show_bar("Ingesting") as show_progress:
            counts = await work.put(files, show_progress)
        removed = await work.prune([normalize(path) for path in paths]) if prune else 0
        failed = [{"path": each.place, "problem": each.problem} for each in finder.skipped]
        return {**counts, "removed": removed, "failed": failed}

    answer = run_in_session(settings, run, with_catalogue=False)
    finder.print_skipped()
    if finder.skipped and not any(answer[name] for name in OUTCOMES):
        raise Invalid(f"no readable files in {', '.join(names)}", details={"failed": answer["failed"]})
    print_answer(answer, as_json, _show)


@dataclass(slots=True)
class _Ingestion:
    """Reads files and puts their documents, a batch at a time."""

    documents: TenantDocuments
    reader: DocumentFileReader
    skipped: list[SkippedFile]
    sources: dict[str, str] = field(default_factory=dict)
    """The file that each document was read from, by id."""
    files: set[str] = field(default_factory=set)
    incomplete: set[str] = field(default_factory=set)
    """The files in which something could not be read."""

    async def put(self, files: Sequence[FoundFile], show_progress: Progress) -> dict[str, int]:
        """Counts the documents that were added, changed and unchanged."""
        counts = dict.fromkeys(OUTCOMES, 0)
        done = 0
        async for batch, files_left in self._read_batches(files):
            total = done + len(batch) + files_left

            def progress(put: int, _: int, done: int = done, total: int = total) -> None:
                show_progress(done + put, total)

            response = await self.documents.put(batch, progress)
            self.skipped += [SkippedFile(self.sources[each], why) for each, why in response["refused"].items()]
            counts = {name: number + response[name] for name, number in counts.items()}
            done += len(batch)
        return counts

    async def prune(self, roots: Sequence[Path]) -> int:
        """Removes documents that were read from below these paths and are no longer in their file, or whose file is
        gone. Returns how many."""
        gone = []
        after: str | None = None
        while True:
            page = await self.documents.list_page(after=after, limit=PAGE_SIZE)
            for each in page["documents"]:
                source = each["metadata"].get(SOURCE)
                is_below = isinstance(source, str) and any(Path(source).is_relative_to(root) for root in roots)
                if is_below and self._is_gone(each["id"], source):
                    gone.append(each["id"])
            after = page["next"]
            if after is None:
                return await self.documents.remove(gone)

    async def _read_batches(self, files: Sequence[FoundFile]) -> AsyncIterator[tuple[list[Document], int]]:
        """Documents, and how many files are left to read after them."""
        batch: list[Document] = []
        size = 0
        for number, found in enumerate(files, start=1):
            async for document in self._read(found):
                batch.append(document)
                size += len(document.text)
                if len(batch) == MAX_BATCH_DOCUMENTS or size > MAX_BATCH_CHARACTERS:
                    yield batch, len(files) - number
                    batch, size = [], 0
        if batch:
            yield batch, 0

    async def _read(self, found: FoundFile) -> AsyncIterator[Document]:
        name = str(found.file)
        self.files.add(name)
        async for each in self.reader.read(found):
            if isinstance(each, SkippedFile):
                self.skipped.append(each)
                self.incomplete.add(name)
            elif each.id in self.sources:
                self.skipped.append(SkippedFile(name, f"its id {each.id!r} is already used by {self.sources[each.id]}"))
            else:
                self.sources[each.id] = name
                yield each

    def _is_gone(self, doc_id: str, source: str) -> bool:
        if doc_id in self.sources or source in self.incomplete:
            return False
        return source in self.files or not Path(source).exists()


def _show(answer: dict[str, Any]) -> None:
    counts = [f"{answer[name]} {name}" for name in OUTCOMES]
    if answer["removed"]:
        counts.append(f"{answer['removed']} removed")
    skipped = len(answer["failed"])
    click.echo(", ".join(counts) + (f"; {skipped} skipped" if skipped else ""))
