"""`toolscript knowledge export` and `import`: sources as JSON lines, for backups and other installations."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from toolscript.domain.errors import Invalid
from toolscript.services.knowledge.json_lines import KINDS, parse_object
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.gateway import encode_json
from toolscript.surfaces.cli.client.session import open_knowledge_writer, read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import show_bar
from toolscript.surfaces.cli.terminal.text import format_count, print_answer, print_skipped, printable

if TYPE_CHECKING:
    pass

Answer = Mapping[str, Any]
Result = TypeVar("Result")

OUTCOMES = ("added", "changed", "unchanged")
# A line is a source, a chunk or an extraction; chunks have a few kilobytes.
MAX_LINE_BYTES = 16 * 2**20


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
    async with open_knowledge_writer(settings) as app:
        with _open(file) as (stream, size), show_bar("Importing") as show_progress:
            lines = _read_objects(stream, numbers, refused, lambda read: show_progress(read, size))
            taken = await app.import_knowledge.take(lines, show_progress)
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
