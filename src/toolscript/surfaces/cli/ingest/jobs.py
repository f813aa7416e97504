"""`toolscript jobs`: shows, cancels and resumes ingest jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import click

from toolscript.domain.errors import Invalid
from toolscript.domain.files.jobs import FileState, JobState, JobTarget
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.ingest.job_client import JobClient
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import (
    format_count,
    format_skipped,
    print_answer,
    print_failed,
    print_note,
)

Answer = Mapping[str, Any]


@click.group(cls=CommandGroup)
def jobs() -> None:
    """Show, cancel and resume the jobs of toolscript ingest.

    A gateway that runs on the data folder works on the jobs. Finished jobs are kept for a week.
    """


@jobs.command("list")
@click.option(
    "--as",
    "target",
    type=click.Choice([target.value for target in JobTarget]),
    default=JobTarget.DOCUMENTS.value,
    help="Jobs whose files become documents or knowledge.  [default: documents]",
)
@options.limit(100, 20, "jobs")
@options.tenant_store
def list_(target: str, limit: int) -> None:
    """List jobs, newest first."""
    answer = _run(JobTarget(target), lambda client: client.list_jobs(limit))
    columns: Columns = {
        "Job": "id",
        "State": "state",
        "Created": "created",
        "Files": lambda job: job["files"]["total"],
        "Done": lambda job: job["files"].get("done", 0),
        "Failed": lambda job: job["files"].get("failed", 0),
    }
    print_answer(
        answer, lambda _: print_table(columns, answer["jobs"], empty="No jobs: start one with toolscript ingest")
    )


@jobs.command()
@click.argument("job_id", metavar="JOB")
@options.tenant_store
def show(job_id: str) -> None:
    """Show how far a job is, and its failed files."""

    async def find(client: JobClient) -> Answer:
        return {**await client.get(job_id), "failed": await client.list_files(job_id, FileState.FAILED)}

    print_answer(_run(_find_target(job_id), find), _show_job)


@jobs.command()
@click.argument("job_id", metavar="JOB")
@options.tenant_store
def cancel(job_id: str) -> None:
    """Cancel a job. What is done stays."""
    print_answer(_run(_find_target(job_id), lambda client: client.change(job_id, "cancel")), _show_job)


@jobs.command()
@click.argument("job_id", metavar="JOB")
@options.tenant_store
def resume(job_id: str) -> None:
    """Continue a job that was cancelled, and try again what failed. Needs a running gateway."""

    async def change(client: JobClient) -> Answer:
        if client.session.app:
            raise Invalid("no gateway runs that could continue the job: start one, or run toolscript ingest again")
        return await client.change(job_id, "resume")

    print_answer(_run(_find_target(job_id), change), _show_job)


def _find_target(job_id: str) -> JobTarget:
    from toolscript.services.ingest.jobs import find_target

    return find_target(job_id)


def _run(target: JobTarget, use: Callable[[JobClient], Awaitable[Answer]]) -> Answer:
    def run(session: CommandSession) -> Awaitable[Answer]:
        return use(JobClient(session, target))

    return run_in_session(read_settings(), run, with_catalogue=False)


def _show_job(answer: Answer) -> None:
    files = answer["files"]
    states = ", ".join(f"{files[state.value]} {state}" for state in FileState if files.get(state.value))
    click.echo(
        f"{answer['id']}: {answer['state']}; {format_count(files['total'], 'file')}{f': {states}' if states else ''}"
    )
    click.echo(", ".join(f"{answer[name]} {name}" for name in ("added", "changed", "unchanged", "removed")))
    for file in answer.get("failed", ()):
        print_failed(file["path"] or file["name"], file["problem"])
    if answer["skipped"]:
        print_note(f"skipped: {format_skipped(answer['skipped'])}")
    if answer["state"] == JobState.CANCELLED:
        print_note(f"toolscript jobs resume {answer['id']} continues it")
