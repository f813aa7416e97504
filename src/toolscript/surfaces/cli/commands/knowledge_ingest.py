"""`toolscript knowledge ingest`: books, papers and other long texts become sources that can be found and cited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed
from toolscript.domain.knowledge import BOOK_ENDINGS
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.ask import settings_of, tell
from toolscript.surfaces.cli.client.knowledge import open_to_write
from toolscript.surfaces.cli.files.documents import Failure, Search, normal
from toolscript.surfaces.cli.files.reading_order import reading_order
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import Bars, bars
from toolscript.surfaces.cli.terminal.text import printable
from toolscript.surfaces.json.knowledge import build_source_response

if TYPE_CHECKING:
    from toolscript.services.knowledge.ingest import IngestKnowledge, IngestResult, SourceDetails

OUTCOMES = ("added", "changed", "unchanged")


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@click.option("--title", metavar="TEXT", help="What the source is called, where the file does not say it well.")
@click.option("--author", "authors", multiple=True, metavar="NAME", help="Who wrote it; give it again for more.")
@click.option("--type", "kind", metavar="WORD", help="A book, unless you say paper, case_study, …")
@click.option("--as-one", is_flag=True, help="A folder is one source: a book of many pages, put into reading order.")
@click.option("--no-extract", is_flag=True, help="Have no language model read it, though one is configured.")
@click.option("--include", multiple=True, metavar="GLOB", help="In folders, read only what fits, whatever it ends in.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="In folders, leave out files and folders that fit.")
@options.data_dir
@options.as_json
def ingest(names: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Put books, papers and other long texts into what can be searched and cited.

    Read are Markdown, HTML, PDF, DOCX, EPUB and plain text; each file is a source, and its chapters, sections and pages
    are kept. Run it again after changes: a source that is the same is left alone, one that has changed takes the place
    of what was there. A file that cannot be read is named, and the others go on; ends with 2 when none can be. A
    gateway that runs on the data folder has to be stopped for as long.

    \b
    toolscript knowledge ingest handbook.pdf --author 'Ada Lovelace' --author 'Charles Babbage'
    toolscript knowledge ingest papers/ --type paper --exclude 'drafts/*'
    toolscript knowledge ingest /usr/share/doc/debian-handbook/html/en-US --as-one
    """
    own = ("title", "authors", "kind", "as_one", "no_extract", "include", "exclude")
    wishes = {name: given.pop(name) for name in own}
    settings = settings_of(given)
    work = _Work(Search(wishes["include"], wishes["exclude"], BOOK_ENDINGS), is_quiet=as_json)
    volumes = _volumes(work.search, work.search.there(names), as_one=wishes["as_one"])
    if (wishes["title"] or wishes["authors"]) and len(volumes) > 1:
        raise Invalid(
            f"--title and --author are for one source, and these are {len(volumes)}: ingest one at a time, or make "
            "one of a folder with --as-one",
            details={"field": "--title" if wishes["title"] else "--author"},
        )
    try:
        asyncio.run(_ingested(settings, work, volumes, wishes))
    except KeyboardInterrupt:
        click.echo("Interrupted. What is done is kept: run it again to go on.", err=True)
        raise
    for failure in work.failures:
        click.echo(_told_failure(failure), err=True)
    if work.search.left_out:
        click.echo(click.style("note: ", fg="yellow") + work.search.note(), err=True)
    answer = work.answer()
    if not answer["sources"]:
        raise Invalid(f"nothing could be read of {', '.join(names)}", details={"failed": answer["failed"]})
    tell(answer, as_json, _show)


@dataclass(frozen=True, slots=True)
class _Volume:
    """What is to become one source: a file, or a folder with its pages in reading order."""

    path: Path
    pages: tuple[Path, ...] = ()


@dataclass(slots=True)
class _Work:
    """What was made so far, and what went wrong."""

    search: Search
    is_quiet: bool
    done: list[IngestResult] = field(default_factory=list)

    @property
    def failures(self) -> list[Failure]:
        return self.search.failures

    def answer(self) -> dict[str, Any]:
        return {
            "sources": [_told(each) for each in self.done],
            "failed": [{"path": each.place, "problem": each.problem} for each in self.failures],
        }

    def finished(self, made: IngestResult, shown: Bars) -> None:
        self.done.append(made)
        if not self.is_quiet:
            shown.say(_line(made))
        for warning in made.warnings:
            told = printable(f"{made.source.title}: {warning}")
            shown.say(click.style("note: ", fg="yellow") + told, err=True)


def _volumes(search: Search, paths: Sequence[Path], *, as_one: bool) -> list[_Volume]:
    volumes: dict[Path, _Volume] = {}
    for path in paths:
        files = [found.file for found in search.files([path])]
        if path.is_dir() and not files:
            search.failures.append(Failure(str(path), f"has no file that can be read: {' '.join(BOOK_ENDINGS)}"))
        elif path.is_dir() and as_one:
            volumes.setdefault(normal(path), _Volume(normal(path), tuple(reading_order(files))))
        else:
            volumes |= {file: _Volume(file) for file in files if file not in volumes}
    return list(volumes.values())


async def _ingested(settings: Settings, work: _Work, volumes: Sequence[_Volume], wishes: dict[str, Any]) -> None:
    if not volumes:
        return
    async with open_to_write(settings) as library:
        from toolscript.services.knowledge.ingest import SourceDetails

        about = SourceDetails(wishes["title"], tuple(wishes["authors"]), wishes["kind"], not wishes["no_extract"])
        with bars("Sources", len(volumes)) as shown:
            for volume in volumes:
                shown.begin(volume.path.name)
                try:
                    work.finished(await _put(library.ingest, volume, about, shown), shown)
                except (Invalid, UpstreamFailed) as error:
                    work.failures.append(Failure(str(volume.path), error.message))
                except Unavailable as error:
                    told = (
                        f"{error.message}. {len(work.done)} of {len(volumes)} sources are done: run it again to go on"
                    )
                    raise Unavailable(told, details=error.details) from error
                shown.end()


async def _put(library: IngestKnowledge, volume: _Volume, about: SourceDetails, shown: Bars) -> IngestResult:
    if volume.pages:
        return await library.ingest_together(volume.path, volume.pages, about, shown.update)
    return await library.ingest(volume.path, about, shown.update)


def _told(made: IngestResult) -> dict[str, Any]:
    return {
        **build_source_response(made.source),
        "outcome": made.outcome,
        "chunks": made.chunks,
        "embedded": made.embedded,
        "extractions": made.extractions,
        "warnings": list(made.warnings),
    }


def _line(made: IngestResult) -> str:
    counts = f"{made.chunks} chunk{'' if made.chunks == 1 else 's'}"
    if made.extractions:
        counts += f", {made.extractions} extraction{'' if made.extractions == 1 else 's'}"
    title = click.style(printable(made.source.title), fg="cyan")
    return f"{made.outcome:<9}  {title}  {click.style(counts, dim=True)}"


def _told_failure(failure: Failure) -> str:
    told = f"{failure.place}: {failure.problem}".encode(errors="replace").decode()
    return click.style("not read: ", fg="yellow") + printable(told)


def _show(answer: dict[str, Any]) -> None:
    counts = [(sum(each["outcome"] == name for each in answer["sources"]), name) for name in OUTCOMES]
    failed = len(answer["failed"])
    told = ", ".join(f"{count} {name}" for count, name in counts)
    click.echo(told + (f"; {failed} could not be read" if failed else ""))
