"""`toolscript ingest`: files and folders become documents or knowledge, beside a running gateway or without one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from toolscript.domain.documents import SOURCE_FIELD
from toolscript.domain.errors import Invalid
from toolscript.domain.files.jobs import FileState, JobTarget
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.commands.documents import TenantDocuments
from toolscript.surfaces.cli.ingest.job_client import JobClient
from toolscript.surfaces.cli.ingest.wanted import WantedIngest
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.progress import show_job
from toolscript.surfaces.cli.terminal.text import (
    format_count,
    format_size,
    format_skipped,
    print_answer,
    print_failed,
    print_note,
    printable,
)
from toolscript.surfaces.cli.terminal.values import parse_pairs

Answer = Mapping[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])

PAGE_SIZE = 1000
OUTCOMES = ("added", "changed", "unchanged")
# A folder of more sources than this is summed up, not listed.
MAX_LISTED_SOURCES = 100


def add_common_options(command: Command) -> Command:
    """The options of every command that ingests."""
    for option in (
        options.as_json,
        options.gateway,
        options.data_dir,
        click.option("--max-size", type=click.FloatRange(min=0), metavar="MB", help="In folders, skip larger files."),
        click.option("--no-ignore", is_flag=True, help="Read what .gitignore and .toolscriptignore files leave out."),
        options.exclude,
        options.include,
        options.tenant,
    ):
        command = option(command)
    return command


def _add_run_options(command: Command) -> Command:
    for option in (
        click.option("--no-wait", is_flag=True, help="Start the job in the gateway, print its id, and return."),
        click.option("--dry-run", is_flag=True, help="Show what would be ingested and what would be skipped."),
    ):
        command = option(command)
    return add_common_options(command)


def _add_source_options(command: Command) -> Command:
    for option in (
        click.option(
            "--no-extract", is_flag=True, help="Do not extract with the language model, even if there is one."
        ),
        click.option("--as-one", is_flag=True, help="Make one source of a folder: a book of many pages."),
        click.option("--type", metavar="WORD", help="Type of the source: paper, case_study, …  [default: book]"),
        click.option("--author", "authors", multiple=True, metavar="NAME", help="Author of the source; repeatable."),
        click.option("--title", metavar="TEXT", help="Title of the source, instead of the one in the file."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("names", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@click.option(
    "--as",
    "target",
    type=click.Choice([target.value for target in JobTarget]),
    default=JobTarget.DOCUMENTS.value,
    help="documents: a tenant's own, found as a whole. knowledge: passages that are cited, for all.  "
    "[default: documents]",
)
@click.option(
    "--metadata",
    multiple=True,
    metavar="NAME=VALUE",
    help="Metadata of all documents: a number, true or false, or else text; repeatable.",
)
@click.option("--prune", is_flag=True, help="Remove documents whose files below these paths are gone.")
@_add_source_options
@_add_run_options
def ingest(names: Sequence[str], target: str, metadata: Sequence[str], prune: bool, **given: Any) -> None:
    """Make files and folders searchable.

    Reads texts, books, office files, tables, JSON, logs, mail, notebooks and source code (docs/guide/knowledge.md lists
    the kinds); as documents also any other text file that is named itself, and .json and .jsonl files with whole
    documents (objects with id, title, text, metadata). Works beside a running gateway. Each file is found as soon as it
    is done. Run it again after changes: what is unchanged is left alone. Files that cannot be read are reported; exits
    with 2 when all are. Ctrl-C stops; what is done stays.

    As documents, the id of a document is its path below the folder; its metadata has path, extension and modified,
    unless the file sets them, and source_path. As knowledge, each file becomes a source with its chapters, sections and
    pages; --title, --author, --type, --as-one and --no-extract are for sources.

    \b
    toolscript ingest notes/
    toolscript ingest notes/ --prune --metadata team=search --exclude 'drafts/*'
    toolscript ingest corpus.jsonl --tenant acme
    toolscript ingest handbook.pdf --as knowledge --author 'Ada Lovelace'
    """
    about = {name: given.pop(name) for name in ("title", "authors", "type", "as_one", "no_extract")}
    if target == JobTarget.KNOWLEDGE:
        if metadata or prune:
            raise Invalid(
                "--metadata and --prune are for documents: leave them out, or leave out --as knowledge",
                details={"field": "--metadata" if metadata else "--prune"},
            )
        _run_ingest(names, _describe_sources(about), **given)
        return
    if used := next((name for name, value in about.items() if value), None):
        flag = f"--{'author' if used == 'authors' else used.replace('_', '-')}"
        raise Invalid(f"{flag} is for sources: add --as knowledge, or leave it out", details={"field": flag})
    more = parse_pairs(metadata, "--metadata")
    if SOURCE_FIELD in more:
        raise Invalid(
            f"invalid --metadata {SOURCE_FIELD}: it is the file that a document was read from; use another name"
        )
    if prune:
        _require_reachable(names)
    _run_ingest(names, WantedIngest(JobTarget.DOCUMENTS, {"metadata": more}), prune=prune, **given)


@click.command("ingest")
@click.argument("names", nargs=-1, required=True, type=click.Path(), metavar="PATH...")
@_add_source_options
@_add_run_options
def ingest_knowledge(names: Sequence[str], **given: Any) -> None:
    """Make files and folders knowledge that can be searched and cited: toolscript ingest --as knowledge.

    \b
    toolscript knowledge ingest handbook.pdf --author 'Ada Lovelace' --type manual
    toolscript knowledge ingest papers/ --type paper --exclude 'drafts/*'
    toolscript knowledge ingest /usr/share/doc/debian-handbook/html/en-US --as-one
    """
    about = {name: given.pop(name) for name in ("title", "authors", "type", "as_one", "no_extract")}
    _run_ingest(names, _describe_sources(about), **given)


def _describe_sources(about: Mapping[str, Any]) -> WantedIngest:
    details = {
        "title": about["title"],
        "authors": list(about["authors"]),
        "type": about["type"],
        "extract": not about["no_extract"],
    }
    return WantedIngest(JobTarget.KNOWLEDGE, details, as_one=about["as_one"])


def _require_reachable(names: Sequence[str]) -> None:
    from toolscript.services.ingest.finder import EMPTY_NAME, find_problem

    for name in names:
        if problem := find_problem(name):
            raise Invalid(
                f"cannot read {name or EMPTY_NAME}: {problem}. Nothing was removed, because it may be unreachable only "
                "for now: run the command without --prune, or without that path",
                details={"field": "--prune"},
            )


def choose_files(
    wanted: WantedIngest, *, include: Sequence[str], exclude: Sequence[str], no_ignore: bool, max_size: float | None
) -> WantedIngest:
    """What is wanted, of the files that the options choose."""
    return replace(
        wanted,
        include=tuple(include),
        exclude=tuple(exclude),
        ignore_files=not no_ignore,
        max_bytes=None if max_size is None else int(max_size * 10**6),
    )


def _run_ingest(
    names: Sequence[str],
    wanted: WantedIngest,
    *,
    include: Sequence[str],
    exclude: Sequence[str],
    dry_run: bool,
    no_wait: bool,
    no_ignore: bool,
    max_size: float | None,
    prune: bool = False,
) -> None:
    settings = read_settings()
    wanted = choose_files(wanted, include=include, exclude=exclude, no_ignore=no_ignore, max_size=max_size)
    roots = [Path(os.path.abspath(name)) for name in names]  # noqa: PTH100
    if dry_run:
        print_answer(wanted.preview(names, settings.tenant), _show_preview)
        return

    async def run(session: CommandSession) -> Answer:
        client = JobClient(session, wanted.target)
        job = await client.start(wanted, names)
        if no_wait:
            return job
        with show_job() as show:
            job = await client.wait(job, show)
        files = await client.list_files(job["id"], FileState.DONE, FileState.FAILED)
        removed = job["removed"]
        if prune:
            removed += await prune_documents(TenantDocuments(session), roots)
        return _build_report(job, files) | {"removed": removed}

    try:
        answer = run_in_session(settings, run, with_catalogue=False)
    except KeyboardInterrupt:
        click.echo("Interrupted. Finished work is kept: run the command again to continue.", err=True)
        raise
    if no_wait:
        print_answer(answer, lambda job: click.echo(f"Job {job['id']} started: toolscript jobs show {job['id']}"))
        return
    _report_problems(answer)
    if answer["failed"] and not any(answer[name] for name in OUTCOMES):
        raise Invalid(f"no readable files in {', '.join(names)}", details={"failed": answer["failed"]})
    print_answer(answer, _show_report)


def _build_report(job: Answer, files: Sequence[Answer]) -> dict[str, Any]:
    failed, warnings = [], []
    for file in files:
        place = file["path"] or file["name"]
        if file["problem"]:
            failed.append({"path": place, "problem": file["problem"]})
        elif job["as"] == JobTarget.DOCUMENTS:
            parts = [warning.partition(": ") for warning in file["warnings"]]
            failed += [{"path": f"{place}, {where}", "problem": problem} for where, _, problem in parts if problem]
            warnings += [{"path": place, "warning": warning} for warning, _, problem in parts if not problem]
    report = {"job": job["id"], **{name: job[name] for name in OUTCOMES}, "failed": failed, "skipped": job["skipped"]}
    if warnings:
        report["warnings"] = warnings
    if job["as"] == JobTarget.KNOWLEDGE:
        report["sources"] = [_build_source(file) for file in files if not file["problem"]]
    return report


def _build_source(file: Answer) -> dict[str, Any]:
    outcome = next((name for name in OUTCOMES if file[name]), "unchanged")
    return {
        "title": file["title"],
        "path": file["path"] or file["name"],
        "outcome": outcome,
        "chunks": file["passages"],
        "warnings": file["warnings"],
    }


async def prune_documents(documents: TenantDocuments, roots: Sequence[Path]) -> int:
    """Removes documents of files below these paths that are gone. Returns how many."""
    from toolscript.services.ingest.finder import NO_SUCH_FILE, find_problem

    gone = []
    after: str | None = None
    while True:
        page = await documents.list_page(after=after, limit=PAGE_SIZE)
        for each in page["documents"]:
            source = each["metadata"].get(SOURCE_FIELD)
            is_below = isinstance(source, str) and any(Path(source).is_relative_to(root) for root in roots)
            if is_below and find_problem(source) == NO_SUCH_FILE:
                gone.append(each["id"])
        after = page["next"]
        if after is None:
            return await documents.remove(gone)


def _report_problems(answer: Answer) -> None:
    for each in answer["failed"]:
        print_failed(each["path"], each["problem"])
    for each in answer.get("warnings", ()):
        print_note(f"{each['path']}: {each['warning']}")
    for source in answer.get("sources", ()):
        for warning in source["warnings"]:
            print_note(f"{source['title']}: {warning}")
    if answer["skipped"]:
        print_note(f"skipped: {format_skipped(answer['skipped'])}")


def _show_report(answer: Answer) -> None:
    sources = answer.get("sources", ())
    for source in sources if len(sources) <= MAX_LISTED_SOURCES else ():
        title, chunks = click.style(printable(source["title"]), fg="cyan"), format_count(source["chunks"], "chunk")
        click.echo(f"{source['outcome']:<9}  {title}  {click.style(chunks, dim=True)}")
    counts = [f"{answer[name]} {name}" for name in OUTCOMES]
    if answer["removed"]:
        counts.append(f"{answer['removed']} removed")
    rest = {"failed": len(answer["failed"]), "skipped": sum(answer["skipped"].values())}
    more = ", ".join(f"{number} {name}" for name, number in rest.items() if number)
    click.echo(", ".join(counts) + (f"; {more}" if more else ""))


def _show_preview(answer: Answer) -> None:
    for file in answer["files"]:
        click.echo(f"{printable(file['path'])}  {click.style(format_size(file['bytes']), dim=True)}")
    for each in answer["failed"]:
        print_failed(each["path"], each["problem"])
    if answer["skipped"]:
        print_note(f"skipped: {format_skipped(answer['skipped'])}")
    total = sum(file["bytes"] for file in answer["files"])
    click.echo(f"{format_count(len(answer['files']), 'file')}, {format_size(total)}; nothing was ingested")
