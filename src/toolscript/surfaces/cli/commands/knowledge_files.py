"""`toolscript knowledge export` and `import`: sources as JSON lines, for backups and other installations."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from toolscript.domain.errors import Invalid
from toolscript.services.knowledge.json_lines import KINDS
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.gateway import encode_json
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import show_bar
from toolscript.surfaces.cli.terminal.text import format_count, print_answer, print_failed, print_note

Answer = Mapping[str, Any]

JSON_LINES = "application/x-ndjson"
# What the gateway takes at once. Embedding it can take many minutes on a small machine.
MAX_UPLOAD_BYTES = 256 * 2**20
TIMEOUT_SECONDS = 3600.0


@click.command()
@click.argument("references", nargs=-1, metavar="[SOURCE...]")
@options.data_dir
@options.as_json
def export(references: tuple[str, ...]) -> None:
    """Print sources, chunks and extractions as JSON lines, for toolscript knowledge import.

    SOURCE is an id, a path, a title, or the beginning of exactly one title; without it, all sources are exported. Also
    works while a gateway runs.

    \b
    toolscript knowledge export > library.jsonl
    toolscript knowledge export "The Debian Adm" > handbook.jsonl
    """
    asyncio.run(_export(read_settings(), references))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE|-")
@options.store
def import_(file: Path) -> None:
    """Import JSON lines: the output of export, or extractions that were made elsewhere.

    A line is {"source": {...}}, {"chunk": {...}} or {"extraction": {...}}. An extraction needs source_id (or the
    source's title), type and content, and may have chunk_id and topics. Lines that fail are reported; exits
    with 2 when all are. A gateway that runs on the data folder is used.

    \b
    toolscript knowledge import library.jsonl
    toolscript knowledge import - < extractions.jsonl
    """
    try:
        answer = run_in_session(read_settings(), lambda session: _import(session, file), with_catalogue=False)
    except KeyboardInterrupt:
        click.echo("Interrupted. Finished work is kept: run the command again to continue.", err=True)
        raise
    for each in answer["refused"]:
        print_failed(f"line {each['line']}", each["problem"])
    if unlisted := answer["refused_count"] - len(answer["refused"]):
        print_note(f"and {format_count(unlisted, 'line')} more")
    if not any(answer[f"{kind}s"] for kind in KINDS):
        raise Invalid(f"no valid lines in {file}", details={"refused": answer["refused"]})
    print_answer(answer, _show_imported)


async def _export(settings: Settings, references: Sequence[str]) -> None:
    from toolscript.app.app import open_library
    from toolscript.services.knowledge.ingest import find_source
    from toolscript.services.knowledge.transfer import export_lines

    async with open_library(settings) as library:
        sources = await library.list_sources()
        wanted = {each.id: each for each in (find_source(sources, reference) for reference in references)}
        async for line in export_lines(library, list(wanted.values()) if references else sources):
            sys.stdout.buffer.write(encode_json(line) + b"\n")
    sys.stdout.buffer.flush()


async def _import(session: CommandSession, file: Path) -> Answer:
    from toolscript.surfaces.json.knowledge import build_import_response

    with _open(file) as (stream, size):
        if app := session.app:
            with show_bar("Importing") as show_progress:
                return build_import_response(await app.texts.import_knowledge.take_stream(stream, show_progress, size))
        lines = stream.read(MAX_UPLOAD_BYTES + 1)
    if len(lines) > MAX_UPLOAD_BYTES:
        raise Invalid(
            f"{file} is larger than {MAX_UPLOAD_BYTES // 2**20} MiB, and a gateway takes no more at once: export the "
            "sources to several files, or stop the gateway",
            details={"field": "FILE"},
        )
    from rich.console import Console

    with Console(stderr=True).status("Importing"), _raise_on_interrupt():
        response: Answer = await session.send(
            "/api/v1/knowledge/import",
            content=(JSON_LINES, lines),
            tenant=None if session.settings.gateway_url else session.settings.tenant,
            timeout_seconds=TIMEOUT_SECONDS,
        )
    return response


@contextmanager
def _raise_on_interrupt() -> Iterator[None]:
    """Lets Ctrl-C end a request that waits for its response: asyncio would only note it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _open(file: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The file and its size. The size of standard input is unknown: 0."""
    if str(file) == "-":
        yield sys.stdin.buffer, 0
        return
    try:
        with file.open("rb") as stream:
            yield stream, file.stat().st_size
    except OSError as error:
        raise Invalid(f"cannot read {file}: {error.strerror}", details={"field": "FILE"}) from error


def _describe(counts: Mapping[str, int]) -> str:
    *first, last = (format_count(counts[f"{kind}s"], kind) for kind in KINDS)
    return f"{', '.join(first)} and {last}"


def _show_imported(answer: Answer) -> None:
    sources = ", ".join(f"{answer[name]} {name}" for name in ("added", "changed") if answer[name])
    failed = answer["refused_count"]
    click.echo(
        f"{_describe(answer)} imported"
        + (f" (sources: {sources})" if sources else "")
        + (f"; {format_count(failed, 'line')} failed" if failed else "")
    )
