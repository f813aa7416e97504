"""`toolscript knowledge ingest`: makes sources that can be found and cited from books, papers and other long texts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed
from toolscript.domain.knowledge import BOOK_ENDINGS
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.session import open_knowledge_writer, read_settings
from toolscript.surfaces.cli.files.finder import FileFinder, SkippedFile, normalize
from toolscript.surfaces.cli.files.reading_order import order_pages
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import Bars, show_bars
from toolscript.surfaces.cli.terminal.text import format_count, print_answer, print_note, printable
from toolscript.surfaces.json.knowledge import build_source_response

if TYPE_CHECKING:
    from toolscript.services.knowledge.ingest import IngestKnowledge, IngestResult, SourceDetails

OUTCOMES = ("added", "changed", "unchanged")
INTERRUPTED = "Interrupted. Finished work is kept: run the command again to continue."


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@click.option("--title", metavar="TEXT", help="Title of the source, instead of the one in the file.")
@click.option("--author", "authors", multiple=True, metavar="NAME", help="Author of the source; repeatable.")
@click.option("--type", "kind", metavar="WORD", help="Type of the source: paper, case_study, …  [default: book]")
@click.option("--as-one", is_flag=True, help="Make one source of a folder: a book of many pages, in reading order.")
@click.option("--no-extract", is_flag=True, help="Do not extract with the language model, even if one is configured.")
@options.include
@options.exclude
@options.data_dir
@options.as_json
def ingest(names: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Add books, papers and other long texts to the knowledge that can be searched and cited.

    Reads Markdown, HTML, PDF, DOCX, EPUB and text files; each file becomes a source that keeps its chapters, sections
    and pages. Run it again after changes: unchanged sources are left alone, changed ones replaced. Files that cannot be
    read are skipped and reported; exits with 2 when all are. Stop a gateway that runs on the data folder first.

    \b
    toolscript knowledge ingest handbook.pdf --author 'Ada Lovelace' --author 'Charles Babbage'
    toolscript knowledge ingest papers/ --type paper --exclude 'drafts/*'
    toolscript knowledge ingest /usr/share/doc/debian-handbook/html/en-US --as-one
    """
    own = ("title", "authors", "kind", "as_one", "no_extract", "include", "exclude")
    wanted = {name: given.pop(name) for name in own}
    settings = read_settings(given)
    finder = FileFinder(BOOK_ENDINGS, wanted["include"], wanted["exclude"])
    sources = _find_sources(finder, finder.check_paths(names), as_one=wanted["as_one"])
    if (wanted["title"] or wanted["authors"]) and len(sources) > 1:
        raise Invalid(
            f"--title and --author are for one source, not for {len(sources)}: ingest one at a time, or make one "
            "source of a folder with --as-one",
            details={"field": "--title" if wanted["title"] else "--author"},
        )
    done: list[IngestResult] = []
    try:
        if sources:
            asyncio.run(_ingest(settings, sources, wanted, done, finder.skipped, is_quiet=as_json))
    except KeyboardInterrupt:
        click.echo(INTERRUPTED, err=True)
        raise
    finder.print_skipped()
    failed = [{"path": each.place, "problem": each.problem} for each in finder.skipped]
    if not done:
        raise Invalid(f"no readable files in {', '.join(names)}", details={"failed": failed})
    print_answer({"sources": [_build_outcome_row(each) for each in done], "failed": failed}, as_json, _show)


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """What becomes one source: a file, or a folder with its pages in reading order."""

    path: Path
    pages: tuple[Path, ...] = ()


def _find_sources(finder: FileFinder, paths: Sequence[Path], *, as_one: bool) -> list[SourceFiles]:
    sources: dict[Path, SourceFiles] = {}
    for path in paths:
        files = [found.file for found in finder.find_files([path])]
        if path.is_dir() and not files:
            problem = f"no readable files; expected {' '.join(BOOK_ENDINGS)}"
            finder.skipped.append(SkippedFile(str(path), problem))
        elif path.is_dir() and as_one:
            sources.setdefault(normalize(path), SourceFiles(normalize(path), tuple(order_pages(files))))
        else:
            sources |= {file: SourceFiles(file) for file in files if file not in sources}
    return list(sources.values())


async def _ingest(
    settings: Settings,
    sources: Sequence[SourceFiles],
    wanted: dict[str, Any],
    done: list[IngestResult],
    skipped: list[SkippedFile],
    *,
    is_quiet: bool,
) -> None:
    """Ingests the sources; what was done and skipped is in the lists, also after an error."""
    async with open_knowledge_writer(settings) as writer:
        from toolscript.services.knowledge.ingest import SourceDetails

        about = SourceDetails(wanted["title"], tuple(wanted["authors"]), wanted["kind"], not wanted["no_extract"])
        with show_bars("Sources", len(sources)) as progress:
            for source in sources:
                progress.begin(source.path.name)
                try:
                    done.append(await _ingest_source(writer.ingest, source, about, progress))
                except (Invalid, UpstreamFailed) as error:
                    skipped.append(SkippedFile(str(source.path), error.message))
                except Unavailable as error:
                    rest = f"{len(done)} of {len(sources)} sources are done: run the command again to continue"
                    raise Unavailable(f"{error.message}. {rest}", details=error.details) from error
                else:
                    with progress.pause():
                        _report(done[-1], is_quiet=is_quiet)
                progress.end()


async def _ingest_source(
    service: IngestKnowledge, source: SourceFiles, about: SourceDetails, progress: Bars
) -> IngestResult:
    if source.pages:
        return await service.ingest_together(source.path, source.pages, about, progress.update)
    return await service.ingest(source.path, about, progress.update)


def _report(made: IngestResult, *, is_quiet: bool) -> None:
    if not is_quiet:
        counts = format_count(made.chunks, "chunk") + (
            f", {format_count(made.extractions, 'extraction')}" if made.extractions else ""
        )
        title = click.style(printable(made.source.title), fg="cyan")
        click.echo(f"{made.outcome:<9}  {title}  {click.style(counts, dim=True)}")
    for warning in made.warnings:
        print_note(f"{made.source.title}: {warning}")


def _build_outcome_row(made: IngestResult) -> dict[str, Any]:
    return {
        **build_source_response(made.source),
        "outcome": made.outcome,
        "chunks": made.chunks,
        "embedded": made.embedded,
        "extractions": made.extractions,
        "warnings": list(made.warnings),
    }


def _show(answer: dict[str, Any]) -> None:
    counts = [f"{sum(each['outcome'] == name for each in answer['sources'])} {name}" for name in OUTCOMES]
    skipped = len(answer["failed"])
    click.echo(", ".join(counts) + (f"; {skipped} skipped" if skipped else ""))
