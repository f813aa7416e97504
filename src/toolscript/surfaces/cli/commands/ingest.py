"""`toolscript ingest`: adds files and folders to a tenant's documents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.surfaces.cli.client.gateway import encode_json
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.commands.documents import Progress, TenantDocuments, build_body
from toolscript.surfaces.cli.files.documents import ENDINGS, SOURCE, DocumentFileReader
from toolscript.surfaces.cli.files.finder import FileFinder, normalize
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import show_bar
from toolscript.surfaces.cli.terminal.text import print_answer
from toolscript.surfaces.cli.terminal.values import parse_pairs

# The documents of a request to the gateway; it accepts 16 MiB, for a single large document.
MAX_BATCH_DOCUMENTS = 256
MAX_BATCH_BYTES = 8 * 2**20
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
    metavar="NAME=VALUE",
    help="Metadata of all documents: a number, true or false, or else text; repeatable.",
)
@click.option(
    "--prune", is_flag=True, help=f"Remove documents that were ingested from these paths (see {SOURCE}) and are gone."
)
@options.data_dir
@options.gateway
@options.as_json
def ingest(
    names: Sequence[str], include: Sequence[str], exclude: Sequence[str], metadata: Sequence[str], prune: bool
) -> None:
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
    finder = FileFinder(ENDINGS, include, exclude)
    settings = read_settings()
    more = parse_pairs(metadata, "--metadata")
    if SOURCE in more:
        raise Invalid(f"invalid --metadata {SOURCE}: it is the file that a document was read from; use another name")
    paths = finder.check_paths(names)
    files = finder.find_files(paths)
    if prune and finder.skipped:
        first = finder.skipped[0]
        raise Invalid(
            f"cannot read {first['path']}: {first['problem']}. Nothing was removed, because it may be unreachable only "
            "for now: run the command without --prune, or without that path",
            details={"field": "--prune"},
        )
    for path in paths if not files and not prune else ():
        if path.is_dir():
            finder.skip(path, "no readable files")

    async def run(session: CommandSession) -> dict[str, int]:
        from toolscript.app.files import open_document_reader

        reader = DocumentFileReader(open_document_reader().read, more, finder)
        work = _Ingestion(TenantDocuments(session), reader, finder)
        with show_bar("Ingesting") as show_progress:
            counts = await work.put(files, show_progress)
        removed = await work.prune([normalize(path) for path in paths]) if prune else 0
        return {**counts, "removed": removed}

    counts = run_in_session(settings, run, with_catalogue=False)
    finder.report(names, is_anything_read=not finder.skipped or any(counts[name] for name in OUTCOMES))
    print_answer({**counts, "failed": finder.skipped}, _show)


@dataclass(slots=True)
class _Ingestion:
    """Reads files and puts their documents, a batch at a time."""

    documents: TenantDocuments
    reader: DocumentFileReader
    finder: FileFinder
    sources: dict[str, str] = field(default_factory=dict)
    """The file that each document was read from, by id."""
    files: set[str] = field(default_factory=set)

    async def put(self, files: Mapping[Path, str], show_progress: Progress) -> dict[str, int]:
        """Counts the documents that were added, changed and unchanged."""
        counts = dict.fromkeys(OUTCOMES, 0)
        done = 0
        async for batch, files_left in self._read_batches(files):
            total = done + len(batch) + files_left

            def progress(put: int, _: int, done: int = done, total: int = total) -> None:
                show_progress(done + put, total)

            response = await self.documents.put(batch, progress)
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

    async def _read_batches(self, files: Mapping[Path, str]) -> AsyncIterator[tuple[list[Document], int]]:
        """Documents that fit a request, and how many files are left to read after them."""
        batch: list[Document] = []
        batch_size = 0
        for number, (file, name) in enumerate(files.items()):
            async for document, size in self._read(file, name):
                if len(batch) == MAX_BATCH_DOCUMENTS or (batch and batch_size + size > MAX_BATCH_BYTES):
                    yield batch, len(files) - number
                    batch, batch_size = [], 0
                batch.append(document)
                batch_size += size
        if batch:
            yield batch, 0

    async def _read(self, file: Path, name: str) -> AsyncIterator[tuple[Document, int]]:
        """The documents in a file that can be put, with their sizes in bytes."""
        path = str(file)
        self.files.add(path)
        async for document in self.reader.read(file, name):
            if other := self.sources.get(document.id):
                self.finder.skip(path, f"its id {document.id!r} is already used by {other}")
                continue
            self.sources[document.id] = path
            size = len(encode_json(build_body(document)))
            if problem := self.documents.find_size_problem(size):
                self.finder.skip(path, problem)
            else:
                yield document, size

    def _is_gone(self, doc_id: str, source: str) -> bool:
        if doc_id in self.sources or source in self.reader.incomplete:
            return False
        return source in self.files or not Path(source).exists()


def _show(answer: dict[str, Any]) -> None:
    counts = [f"{answer[name]} {name}" for name in OUTCOMES]
    if answer["removed"]:
        counts.append(f"{answer['removed']} removed")
    skipped = len(answer["failed"])
    click.echo(", ".join(counts) + (f"; {skipped} skipped" if skipped else ""))
