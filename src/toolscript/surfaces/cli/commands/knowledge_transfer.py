"""`toolscript knowledge export` and `import`: sources as JSON lines, to be kept, or carried elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from toolscript.domain.errors import Invalid
from toolscript.services.knowledge.json_lines import KINDS, parse_object
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.ask import settings_of, tell
from toolscript.surfaces.cli.client.gateway import said
from toolscript.surfaces.cli.client.knowledge import open_to_write
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import bar
from toolscript.surfaces.cli.terminal.text import printable

Answer = Mapping[str, Any]
# A line holds a source, a chunk or an extraction: none is anywhere near as long.
LONGEST_LINE = 16 * 2**20


@click.command()
@click.argument("references", nargs=-1, metavar="[SOURCE...]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to, if not standard output."
)
@options.data_dir
@options.as_json
def export(references: tuple[str, ...], output: Path | None, as_json: bool, **flags: Any) -> None:
    """Print sources with all that was made of them as JSON lines, for toolscript knowledge import.

    SOURCE is an id, a path, a title, or what only one title begins with; without any, all are exported. A file is
    written whole or not at all. With a gateway running, too.

    \b
    toolscript knowledge export > library.jsonl
    toolscript knowledge export "The Debian Adm" -o handbook.jsonl
    """
    settings = settings_of(flags)
    if output is None or str(output) == "-":
        asyncio.run(_exported(settings, references, sys.stdout.buffer))
        return
    with _written_whole(output) as file:
        counts = asyncio.run(_exported(settings, references, file))
    told = f"{_counted(counts)} written to {printable(str(output))}"
    tell({"file": str(output), **counts}, as_json, lambda _: click.echo(told))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE|-")
@options.data_dir
@options.as_json
def import_(file: Path, as_json: bool, **flags: Any) -> None:
    """Take in JSON lines: what export printed, or extractions that were made elsewhere.

    A line is {"source": {...}}, {"chunk": {...}} or {"extraction": {...}}. An extraction needs source_id (or the
    source's title), type and content, and may have chunk_id and topics. A line that cannot be used is named by its
    number, and the others go on; ends with 2 when none can be. A gateway that runs on the data folder has to be stopped
    for as long.

    \b
    toolscript knowledge import library.jsonl
    toolscript knowledge import - < extractions.jsonl
    """
    settings = settings_of(flags)
    try:
        answer = asyncio.run(_imported(settings, file))
    except KeyboardInterrupt:
        click.echo("Interrupted. What is done is kept: run it again to go on.", err=True)
        raise
    for each in answer["refused"]:
        told = printable(f"line {each['line']}: {each['problem']}")
        click.echo(click.style("not taken: ", fg="yellow") + told, err=True)
    if not any(answer[f"{kind}s"] for kind in KINDS):
        raise Invalid(f"{file} has no line that could be taken", details={"refused": answer["refused"]})
    tell(answer, as_json, _show_imported)


async def _exported(settings: Settings, references: Sequence[str], file: IO[bytes]) -> dict[str, int]:
    from toolscript.app.app import open_library
    from toolscript.services.knowledge.ingest import find_source
    from toolscript.services.knowledge.transfer import export_lines

    counts = {f"{kind}s": 0 for kind in KINDS}
    async with open_library(settings) as library:
        sources = await library.list_sources()
        wanted = {each.id: each for each in (find_source(sources, reference) for reference in references)}
        async for line in export_lines(library, list(wanted.values()) if references else sources):
            file.write(said(line) + b"\n")
            counts[f"{next(iter(line))}s"] += 1
    file.flush()
    return counts


@contextmanager
def _written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of what is there when the block has ended well. What is no plain file (a pipe, a
    device) is written to as it is."""
    target = path.resolve()
    draft = target if target.exists() and not target.is_file() else target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        with draft.open("wb") as file:
            yield file
        if draft != target:
            draft.replace(target)
    except OSError as error:
        raise Invalid(f"{path} cannot be written ({error.strerror})", details={"field": "--output"}) from error
    finally:
        if draft != target:
            draft.unlink(missing_ok=True)


async def _imported(settings: Settings, file: Path) -> dict[str, Any]:
    async with open_to_write(settings) as library:
        with _opened(file) as (stream, size), bar("Importing") as shown:
            lines = Lines(stream, lambda read: shown(read, size))
            taken = await library.imports.take(lines, shown)
    refused = lines.refused + [(lines.numbers[number - 1], problem) for number, problem in taken.refused]
    return {
        "sources": taken.sources,
        "added": taken.added,
        "changed": taken.changed,
        "chunks": taken.chunks,
        "extractions": taken.extractions,
        "refused": [{"line": number, "problem": problem} for number, problem in sorted(refused)],
    }


@contextmanager
def _opened(file: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The file and its size; that of standard input is not known."""
    if str(file) == "-":
        yield sys.stdin.buffer, 0
        return
    try:
        with file.open("rb") as stream:
            yield stream, file.stat().st_size
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}", details={"field": "FILE"}) from error


class Lines:
    """The objects that the lines of a stream hold, as they are asked for; what is none is refused."""

    def __init__(self, stream: IO[bytes], progress: Callable[[int], None]) -> None:
        self._stream = stream
        self._progress = progress
        self.numbers: list[int] = []
        """Which line each object stood on."""
        self.refused: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        number = read = 0
        while line := self._stream.readline(LONGEST_LINE + 1):
            number, read = number + 1, read + len(line)
            if len(line) > LONGEST_LINE:
                self.refused.append(
                    (number, f"is longer than {LONGEST_LINE // 2**20} MiB: what follows it is not read")
                )
                return
            self._progress(read)
            if line.strip():
                try:
                    told = parse_object(line)
                except Invalid as error:
                    self.refused.append((number, error.message))
                else:
                    self.numbers.append(number)
                    yield told


def _counted(counts: Mapping[str, int]) -> str:
    told = [f"{counts[f'{kind}s']} {kind}{'' if counts[f'{kind}s'] == 1 else 's'}" for kind in KINDS]
    return f"{told[0]}, {told[1]} and {told[2]}"


def _show_imported(answer: Answer) -> None:
    sources = ", ".join(f"{answer[name]} {name}" for name in ("added", "changed") if answer[name])
    refused = len(answer["refused"])
    click.echo(
        f"{_counted(answer)} taken"
        + (f" (sources: {sources})" if sources else "")
        + (f"; {refused} lines could not be" if refused else "")
    )
