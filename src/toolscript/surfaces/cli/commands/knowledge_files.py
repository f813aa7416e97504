"""`toolscript knowledge ingest`, `export` and `import`: sources from books, papers and other long texts, and as JSON
lines for backups and other installations."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed
from toolscript.domain.file_kinds import FILE_ENDINGS
from toolscript.domain.knowledge import BOOK_ENDINGS
from toolscript.services.knowledge.json_lines import KINDS, parse_object
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.gateway import encode_json
from toolscript.surfaces.cli.client.session import open_knowledge_writer, read_settings
from toolscript.surfaces.cli.files.finder import FileFinder, normalize
from toolscript.surfaces.cli.files.reading_order import order_pages
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import show_bar, show_bars
from toolscript.surfaces.cli.terminal.text import format_count, print_answer, print_note, print_skipped, printable
from toolscript.surfaces.json.knowledge import build_source_response

if TYPE_CHECKING:
    from toolscript.services.knowledge.ingest import IngestResult

Answer = Mapping[str, Any]
Result = TypeVar("Result")

OUTCOMES = ("added", "changed", "unchanged")
# A line is a source, a chunk or an extraction; chunks have a few kilobytes.
MAX_LINE_BYTES = 16 * 2**20


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@click.option("--title", metavar="TEXT", help="Title of the source, instead of the one in the file.")
@click.option("--author", "authors", multiple=True, metavar="NAME", help="Author of the source; repeatable.")
@click.option("--type", metavar="WORD", help="Type of the source: paper, case_study, …  [default: book]")
@click.option("--as-one", is_flag=True, help="Make one source of a folder: a book of many pages, in reading order.")
@click.option("--no-extract", is_flag=True, help="Do not extract with the language model, even if one is configured.")
@options.include
@options.exclude
@options.data_dir
@options.as_json
def ingest(
    names: Sequence[str], as_one: bool, no_extract: bool, include: Sequence[str], exclude: Sequence[str], **about: Any
) -> None:
    """Add books, papers and other long texts to the knowledge that can be searched and cited.

    Reads Markdown, HTML, PDF, EPUB, text, office files, e-mail, tables, JSON, notebooks, logs and source code; each
    file becomes a source that keeps its chapters, sections and pages. Run it again after changes: unchanged sources are
    left alone, changed ones replaced. Files that cannot be read are skipped and reported; exits with 2 when all are.
    Stop a gateway that runs on the data folder first.

    \b
    toolscript knowledge ingest handbook.pdf --author 'Ada Lovelace' --author 'Charles Babbage'
    toolscript knowledge ingest papers/ --type paper --exclude 'drafts/*'
    toolscript knowledge ingest /usr/share/doc/debian-handbook/html/en-US --as-one
    """
    settings = read_settings()
    finder = FileFinder(BOOK_ENDINGS if as_one else FILE_ENDINGS, include, exclude)
    sources = _find_sources(finder, finder.check_paths(names), as_one=as_one)
    if (about["title"] or about["authors"]) and len(sources) > 1:
        raise Invalid(
            f"--title and --author are for one source, not for {len(sources)}: ingest one at a time, or make one "
            "source of a folder with --as-one",
            details={"field": "--title" if about["title"] else "--author"},
        )
    about["extract"] = not no_extract
    done = _run(_ingest(settings, sources, about, finder)) if sources else []
    finder.report(names, is_anything_read=bool(done))
    print_answer({"sources": [_build_outcome_row(each) for each in done], "failed": finder.skipped}, _show_ingested)


@click.command()
@click.argument("references", nargs=-1, metavar="[SOURCE...]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write.  [default: standard output]"
)
@options.data_dir
@options.as_json
def export(references: tuple[str, ...], output: Path | None) -> None:
    """Print sources, chunks and extractions as JSON lines, for toolscript knowledge import.

    SOURCE is an id, a path, a title, or the beginning of exactly one title; without it, all sources are exported. An
    output file is replaced only when the export is complete. Also works while a gateway runs.

    \b
    toolscript knowledge export > library.jsonl
    toolscript knowledge export "The Debian Adm" -o handbook.jsonl
    """
    settings = read_settings()
    if output is None or str(output) == "-":
        asyncio.run(_export(settings, references, sys.stdout.buffer))
        return
    with _replace_file(output) as file:
        counts = asyncio.run(_export(settings, references, file))
    summary = f"{_describe(counts)} written to {printable(str(output))}"
    print_answer({"file": str(output), **counts}, lambda _: click.echo(summary))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE|-")
@options.data_dir
@options.as_json
def import_(file: Path) -> None:
    """Import JSON lines: the output of export, or extractions that were made elsewhere.

    A line is {"source": {...}}, {"chunk": {...}} or {"extraction": {...}}. An extraction needs source_id (or the
    source's title), type and content, and may have chunk_id and topics. Invalid lines are skipped and reported; exits
    with 2 when all are. Stop a gateway that runs on the data folder first.

    \b
    toolscript knowledge import library.jsonl
    toolscript knowledge import - < extractions.jsonl
    """
    answer = _run(_import(read_settings(), file))
    for each in answer["refused"]:
        print_skipped(f"line {each['line']}", each["problem"])
    if not any(answer[f"{kind}s"] for kind in KINDS):
        raise Invalid(f"no valid lines in {file}", details={"refused": answer["refused"]})
    print_answer(answer, _show_imported)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        click.echo("Interrupted. Finished work is kept: run the command again to continue.", err=True)
        raise


def _find_sources(finder: FileFinder, paths: Sequence[Path], *, as_one: bool) -> dict[Path, list[Path]]:
    """What becomes a source: a file, or a folder with its pages in reading order."""
    sources: dict[Path, list[Path]] = {}
    for path in paths:
        files = list(finder.find_files([path]))
        if path.is_dir() and not files:
            finder.skip(path, f"no readable files; expected {' '.join(finder.endings)}")
        elif path.is_dir() and as_one:
            sources.setdefault(normalize(path), order_pages(files))
        else:
            sources |= {file: [] for file in files if file not in sources}
    return sources


async def _ingest(
    settings: Settings, sources: Mapping[Path, Sequence[Path]], about: Mapping[str, Any], finder: FileFinder
) -> list[IngestResult]:
    done: list[IngestResult] = []
    async with open_knowledge_writer(settings) as (service, _):
        from toolscript.services.knowledge.ingest import SourceDetails

        details = SourceDetails(**about)
        with show_bars("Sources", len(sources)) as progress:
            for path, pages in sources.items():
                try:
                    with progress.show_item(path.name) as update:
                        if pages:
                            made = await service.ingest_together(path, pages, details, update)
                        else:
                            made = await service.ingest(path, details, update)
                except (Invalid, UpstreamFailed) as error:
                    finder.skip(path, error.message)
                except Unavailable as error:
                    rest = f"{len(done)} of {len(sources)} sources are done: run the command again to continue"
                    raise Unavailable(f"{error.message}. {rest}", details=error.details) from error
                else:
                    done.append(made)
                    with progress.pause():
                        _report(made)
    return done


def _report(made: IngestResult) -> None:
    if not options.is_json():
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


def _show_ingested(answer: Answer) -> None:
    counts = [f"{sum(each['outcome'] == name for each in answer['sources'])} {name}" for name in OUTCOMES]
    skipped = len(answer["failed"])
    click.echo(", ".join(counts) + (f"; {skipped} skipped" if skipped else ""))


async def _export(settings: Settings, references: Sequence[str], file: IO[bytes]) -> dict[str, int]:
    from toolscript.app.app import open_library
    from toolscript.services.knowledge.ingest import find_source
    from toolscript.services.knowledge.transfer import export_lines

    counts = {f"{kind}s": 0 for kind in KINDS}
    async with open_library(settings) as library:
        sources = await library.list_sources()
        wanted = {each.id: each for each in (find_source(sources, reference) for reference in references)}
        async for line in export_lines(library, list(wanted.values()) if references else sources):
            file.write(encode_json(line) + b"\n")
            counts[f"{next(iter(line))}s"] += 1
    file.flush()
    return counts


@contextmanager
def _replace_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that replaces `path` when the block ends without an error. A pipe or device is written to directly."""
    target = path.resolve()
    draft = target if target.exists() and not target.is_file() else target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        with draft.open("wb") as file:
            yield file
        if draft != target:
            draft.replace(target)
    except OSError as error:
        raise Invalid(f"cannot write {path}: {error.strerror}", details={"field": "--output"}) from error
    finally:
        if draft != target:
            draft.unlink(missing_ok=True)


async def _import(settings: Settings, file: Path) -> dict[str, Any]:
    numbers: list[int] = []
    refused: list[tuple[int, str]] = []
    async with open_knowledge_writer(settings) as (_, service):
        with _open(file) as (stream, size), show_bar("Importing") as show_progress:
            lines = _read_objects(stream, numbers, refused, lambda read: show_progress(read, size))
            taken = await service.take(lines, show_progress)
    refused += [(numbers[number - 1], problem) for number, problem in taken.refused]
    counts = {name: getattr(taken, name) for name in ("sources", "added", "changed", "chunks", "extractions")}
    return {**counts, "refused": [{"line": number, "problem": problem} for number, problem in sorted(refused)]}


@contextmanager
def _open(file: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The file and its size, which is 0 for standard input: it is unknown."""
    if str(file) == "-":
        yield sys.stdin.buffer, 0
        return
    try:
        with file.open("rb") as stream:
            yield stream, file.stat().st_size
    except OSError as error:
        raise Invalid(f"cannot read {file}: {error.strerror}", details={"field": "FILE"}) from error


def _read_objects(
    stream: IO[bytes], numbers: list[int], refused: list[tuple[int, str]], progress: Callable[[int], None]
) -> Iterator[Mapping[str, Any]]:
    """The objects in the lines of a stream. Collects the number of each object's line, and invalid lines."""
    number = read = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number, read = number + 1, read + len(line)
        if len(line) > MAX_LINE_BYTES:
            refused.append((number, f"longer than {MAX_LINE_BYTES // 2**20} MiB: reading stops here"))
            return
        progress(read)
        if line.strip():
            try:
                value = parse_object(line)
            except Invalid as error:
                refused.append((number, error.message))
            else:
                numbers.append(number)
                yield value


def _describe(counts: Mapping[str, int]) -> str:
    *first, last = (format_count(counts[f"{kind}s"], kind) for kind in KINDS)
    return f"{', '.join(first)} and {last}"


def _show_imported(answer: Answer) -> None:
    sources = ", ".join(f"{answer[name]} {name}" for name in ("added", "changed") if answer[name])
    skipped = len(answer["refused"])
    click.echo(
        f"{_describe(answer)} imported"
        + (f" (sources: {sources})" if sources else "")
        + (f"; {format_count(skipped, 'line')} skipped" if skipped else "")
    )
