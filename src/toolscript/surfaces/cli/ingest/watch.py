"""`toolscript watch`: keeps folders in step with documents or knowledge."""

from __future__ import annotations

import glob
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from toolscript.domain.errors import Invalid, ToolscriptError
from toolscript.domain.files.jobs import FileState, JobTarget
from toolscript.domain.files.kinds import FILE_ENDINGS
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.commands.documents import TenantDocuments
from toolscript.surfaces.cli.ingest.command import OUTCOMES, add_common_options, choose_files, prune_documents
from toolscript.surfaces.cli.ingest.job_client import JobClient
from toolscript.surfaces.cli.ingest.sources import remove_gone_sources
from toolscript.surfaces.cli.ingest.wanted import WantedIngest
from toolscript.surfaces.cli.terminal.progress import show_job
from toolscript.surfaces.cli.terminal.text import print_answer, print_failed, print_note

# Changes within this time are ingested together: an editor writes a file in several steps.
SETTLE_MILLISECONDS = 500
START_MILLISECONDS = 200
# More changed files than this are found by reading the whole folder again.
MAX_NAMED_FILES = 100


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Path(), metavar="FOLDER...")
@click.option(
    "--as",
    "target",
    type=click.Choice([target.value for target in JobTarget]),
    default=JobTarget.DOCUMENTS.value,
    help="What files become: documents or knowledge.  [default: documents]",
)
@click.option("--poll", is_flag=True, help="Look at all files again and again: for network drives without events.")
@add_common_options
def watch(names: Sequence[str], target: str, poll: bool, **given: Any) -> None:
    """Keep folders in step: ingest them, then every change, until Ctrl-C.

    New and changed files are ingested half a second after the last change; documents and sources of deleted files are
    removed. Works beside a running gateway, and without one. Needs pip install 'toolscript[watch]'.

    \b
    toolscript watch notes/
    toolscript watch ~/papers --as knowledge
    """
    try:
        import watchfiles as _  # noqa: F401
    except ImportError as error:
        raise Invalid("toolscript watch needs an optional dependency: pip install 'toolscript[watch]'") from error
    wanted = choose_files(WantedIngest(JobTarget(target), {}), **given)
    roots = [Path(name).absolute() for name in names]
    if (
        missing := next((name for name, root in zip(names, roots, strict=True) if not name or not root.is_dir()), None)
    ) is not None:
        raise Invalid(f"not a folder: {missing!r}: give folders that exist", details={"field": "FOLDER"})

    def run(session: CommandSession) -> Awaitable[None]:
        return _follow(session, wanted, roots, poll=poll)

    run_in_session(read_settings(), run, with_catalogue=False)


async def _follow(session: CommandSession, wanted: WantedIngest, roots: Sequence[Path], *, poll: bool) -> None:
    from watchfiles import Change, awatch

    is_in_step = False
    async for changes in awatch(
        *roots,
        debounce=SETTLE_MILLISECONDS,
        step=100,
        force_polling=poll or None,
        rust_timeout=START_MILLISECONDS,
        yield_on_timeout=True,
    ):
        if not is_in_step:  # whatever changes from now on is noticed
            await _bring_in_step(session, wanted, roots)
            is_in_step = True
            continue
        if not changes:
            continue
        paths = {Path(path) for _, path in changes}
        try:
            for root in roots:
                if changed := [path for path in paths if path.is_relative_to(root) and path.exists()]:
                    await _ingest(session, wanted, root, changed)
            if any(change is Change.deleted for change, _ in changes):
                await _remove_gone(session, wanted.target, roots)
        except ToolscriptError as error:  # a gateway that restarts must not end the watch
            print_note(f"{error.message}; the next change tries again")


async def _bring_in_step(session: CommandSession, wanted: WantedIngest, roots: Sequence[Path]) -> None:
    for root in roots:
        await _ingest(session, wanted, root)
    await _remove_gone(session, wanted.target, roots)
    print_note(f"{', '.join(map(str, roots))}: waiting for changes, Ctrl-C stops", label="watching")


async def _ingest(
    session: CommandSession, wanted: WantedIngest, root: Path, changed: Sequence[Path] | None = None
) -> None:
    """Ingests a folder, or only its changed files. What is in a folder that appeared is not known by name."""
    if changed and len(changed) <= MAX_NAMED_FILES and not wanted.include and all(path.is_file() for path in changed):
        named = [path.relative_to(root) for path in changed if path.suffix.lower() in FILE_ENDINGS]
        if not named:
            return
        wanted = replace(wanted, include=tuple(glob.escape(path.as_posix()) for path in named))
    client = JobClient(session, wanted.target)
    job = await client.start(wanted, [str(root)])
    with show_job() as show:
        job = await client.wait(job, show)
    for file in await client.list_files(job["id"], FileState.FAILED):
        if file["path"] != str(root):  # a watched folder may have no file to read
            print_failed(file["path"] or file["name"], file["problem"])
    if any(job[name] for name in ("added", "changed", "removed")):
        counts = {name: job[name] for name in (*OUTCOMES, "removed")}
        print_answer(
            {"folder": str(root), **counts},
            lambda _: click.echo(f"{root}: " + ", ".join(f"{n} {name}" for name, n in counts.items() if n)),
        )


async def _remove_gone(session: CommandSession, target: JobTarget, roots: Sequence[Path]) -> None:
    if target is JobTarget.DOCUMENTS:
        removed = await prune_documents(TenantDocuments(session), roots)
    else:
        removed = await remove_gone_sources(session, roots)
    if removed:
        print_answer({"removed": removed}, lambda _: click.echo(f"{removed} removed"))
