"""`toolscript ingest`: files and folders become a tenant's documents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.ask import settings_of, tell
from toolscript.surfaces.cli.client.documents import Documents, Progress, documents_of
from toolscript.surfaces.cli.files.documents import SOURCE, Failure, Found, Search, normal, read
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import bar
from toolscript.surfaces.cli.terminal.text import printable
from toolscript.surfaces.cli.terminal.values import pairs

MOST_AT_ONCE = 256
MOST_CHARACTERS_AT_ONCE = 4_000_000
LISTED_AT_ONCE = 1000
PUT = ("added", "changed", "unchanged")


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@options.overrides("tenant", "--tenant", metavar="NAME")
@click.option("--include", multiple=True, metavar="GLOB", help="In folders, read only what fits, whatever it ends in.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="In folders, leave out files and folders that fit.")
@click.option(
    "--metadata",
    multiple=True,
    metavar="KEY=VALUE",
    help="Metadata for all of them: a number, true or false, else a text.",
)
@click.option(
    "--prune",
    is_flag=True,
    help=f"Remove what was ingested from below these paths (its {SOURCE}) and is no longer there.",
)
@options.data_dir
@options.as_json
def ingest(
    names: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    metadata: tuple[str, ...],
    prune: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Put files and folders into the documents that can be searched.

    Read are .txt, .md, .rst, .html, .json and .jsonl (objects with id, title, text, metadata), and any other file that
    is named itself. A document is called by its path below the folder, and has path, extension and modified as
    metadata, unless it says otherwise itself; and source_path, which only ingest sets. Run it again after changes: what
    is the same is left alone. A file that cannot be read is named, and the others go on; ends with 2 when none can be.

    \b
    toolscript ingest notes/
    toolscript ingest notes/ --prune --metadata team=search --exclude 'drafts/*'
    toolscript ingest corpus.jsonl --tenant acme
    """
    settings = settings_of(flags)
    more = pairs(metadata, "--metadata")
    if SOURCE in more:
        raise Invalid(
            f"--metadata {SOURCE} is not usable: it says which file a document came from; choose another name"
        )
    work = _Work(Search(include, exclude), more)
    answer = asyncio.run(_ingested(settings, work, names, prune=prune))
    for each in answer["failed"]:
        told = printable(f"{each['path']}: {each['problem']}".encode(errors="replace").decode())
        click.echo(click.style("not read: ", fg="yellow") + told, err=True)
    if work.search.left_out:
        click.echo(click.style("note: ", fg="yellow") + work.search.note(), err=True)
    if work.failures and not any(answer[name] for name in PUT):
        raise Invalid(f"nothing could be read of {', '.join(names)}", details={"failed": answer["failed"]})
    tell(answer, as_json, _show)


@dataclass(slots=True)
class _Work:
    """What is read, a few documents at a time, and what was wrong on the way."""

    search: Search
    metadata: dict[str, Any]
    came_from: dict[str, str] = field(default_factory=dict)
    """Where each document that was read came from, by id."""
    files: set[str] = field(default_factory=set)
    """The files that were read."""
    unsure: set[str] = field(default_factory=set)
    """The files of which something could not be read."""

    @property
    def failures(self) -> list[Failure]:
        return self.search.failures

    def batches(self, files: Sequence[Found]) -> Iterator[tuple[list[Document], int]]:
        """Documents, and how many files are still to be read after them."""
        batch: list[Document] = []
        size = 0
        for number, found in enumerate(files, start=1):
            for made in self._read(found):
                batch.append(made)
                size += len(made.text)
                if len(batch) == MOST_AT_ONCE or size > MOST_CHARACTERS_AT_ONCE:
                    yield batch, len(files) - number
                    batch, size = [], 0
        if batch:
            yield batch, 0

    def is_gone(self, doc_id: str, came_from: str) -> bool:
        """Whether a document that came from that file is no longer there. One that was just read is."""
        if doc_id in self.came_from or came_from in self.unsure:
            return False
        return came_from in self.files or not Path(came_from).exists()

    def _read(self, found: Found) -> Iterator[Document]:
        self.files.add(str(found.file))
        for made in read(found, self.metadata):
            if isinstance(made, Failure):
                self.failures.append(made)
                self.unsure.add(str(found.file))
            elif made.id in self.came_from:
                told = f"has the id {made.id!r}, which {self.came_from[made.id]} has too: left out"
                self.failures.append(Failure(str(found.file), told))
            else:
                self.came_from[made.id] = str(found.file)
                yield made


async def _ingested(settings: Settings, work: _Work, names: Sequence[str], *, prune: bool) -> dict[str, Any]:
    paths = work.search.there(names)
    roots = [normal(path) for path in paths]
    files = work.search.files(paths)
    if prune and work.failures:
        raise Invalid(
            f"{work.failures[0].place} {work.failures[0].problem}: nothing is removed, because it may only be out of "
            "reach; run it without --prune, or without that path",
            details={"field": "--prune"},
        )
    if not files and not prune:
        work.failures.extend(Failure(str(path), "has no file that can be read") for path in paths if path.is_dir())
    async with documents_of(settings) as documents:
        with bar("Ingesting") as shown:
            counts = await _put(documents, work, files, shown)
        removed = await _pruned(documents, work, roots) if prune else 0
    failed = [{"path": each.place, "problem": each.problem} for each in work.failures]
    return {**counts, "removed": removed, "failed": failed}


async def _put(documents: Documents, work: _Work, files: Sequence[Found], shown: Progress) -> dict[str, int]:
    counts = dict.fromkeys(PUT, 0)
    done = 0
    for batch, files_left in work.batches(files):
        total = done + len(batch) + files_left

        def progress(here: int, _: int, done: int = done, total: int = total) -> None:
            shown(done + here, total)

        put = await documents.put(batch, progress)
        work.failures.extend(Failure(work.came_from[each], problem) for each, problem in put["refused"].items())
        counts = {name: count + put[name] for name, count in counts.items()}
        done += len(batch)
    return counts


async def _pruned(documents: Documents, work: _Work, roots: Sequence[Path]) -> int:
    """Removes what came from below these paths and is gone: its file, or it from a file that holds several."""
    gone = []
    after: str | None = None
    while True:
        listed = await documents.listing(after=after, limit=LISTED_AT_ONCE)
        for each in listed["documents"]:
            came_from = each["metadata"].get(SOURCE)
            if not isinstance(came_from, str) or not any(Path(came_from).is_relative_to(root) for root in roots):
                continue
            if work.is_gone(each["id"], came_from):
                gone.append(each["id"])
        after = listed["next"]
        if after is None:
            return await documents.remove(gone)


def _show(answer: dict[str, Any]) -> None:
    told = [f"{answer[name]} {name}" for name in PUT]
    if answer["removed"]:
        told.append(f"{answer['removed']} removed")
    failed = len(answer["failed"])
    click.echo(", ".join(told) + (f"; {failed} could not be read" if failed else ""))
