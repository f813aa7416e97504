"""`toolscript train-data`: exports tools and judged queries, to train an embedding model with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.errors import Conflict, Invalid
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import format_count, print_answer, print_note, printable

if TYPE_CHECKING:
    pass

MAX_NAMES_SHOWN = 5


@click.command("train-data")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--queries",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File of judged queries, a JSON object a line with query and relevant (a list of tool ids), as `toolscript "
    "eval` reads them; repeatable.",
)
@options.config
@options.data_dir
@options.gateway
@options.refresh
@options.as_json
def train_data(folder: Path, files: Sequence[Path], refresh: bool) -> None:
    """Export all tools, and judged queries, in the form that training reads.

    DIR must be new or empty. It gets tools.jsonl, queries.jsonl with the queries of each tool, and tasks.jsonl with
    those that have several relevant tools. `python -m training` in a checkout of Toolscript trains an embedding model
    with them: docs/guide/training.md.

    \b
    toolscript train-data mine --queries judged.jsonl
    """
    from toolscript.evaluation.datasets import read_judged_queries
    from toolscript.evaluation.training_data import QUERIES, TASKS, TOOLS, build_training_data

    if folder.exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty: name a new folder", details={"folder": str(folder)})
    judged = [query for file in files for query in read_judged_queries(file)]
    tools = run_in_session(read_settings(), _read_tools, refresh=refresh)
    data = build_training_data(tools, judged)
    if judged and not data.queries and not data.tasks:
        raise Invalid(
            f"no query has a tool of this catalogue: relevant must be ids such as {next(iter(tools), 'server__tool')}",
            details={"unknown": data.unknown},
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in ((TOOLS, data.tools), (QUERIES, data.queries), (TASKS, data.tasks)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / name).write_text(lines, encoding="utf-8")
    counts = {"tools": len(data.tools), "queries": sum(len(row["queries"]) for row in data.queries)}
    answer = {"folder": str(folder), **counts, "tasks": len(data.tasks), "unknown": data.unknown}
    print_answer(answer, _show)


async def _read_tools(session: CommandSession) -> dict[str, dict[str, Any]]:
    """The tools by id, with their schemas."""
    if session.app:
        return {
            item.id: _build_row(item.server, item.name, item.description, item.input_schema)
            for item in await session.app.list_tools.matching(None)
            if item.type == "tool"
        }
    listed = (await session.send("/tools"))["tools"]
    found = [await session.send(f"/tools/{quote(t['toolId'], safe='')}") for t in listed if t["type"] == "tool"]
    return {
        tool["toolId"]: _build_row(tool["serverName"], tool["toolName"], tool["description"], tool["inputSchema"])
        for tool in found
    }


def _build_row(server: str, name: str, description: str, schema: Any) -> dict[str, Any]:
    return {"server": server, "name": name, "description": description, "input_schema": schema}


def _show(answer: Mapping[str, Any]) -> None:
    if unknown := answer["unknown"]:
        more = f" and {len(unknown) - MAX_NAMES_SHOWN} more" if len(unknown) > MAX_NAMES_SHOWN else ""
        print_note(f"not in this catalogue, left out: {', '.join(map(printable, unknown[:MAX_NAMES_SHOWN]))}{more}")
    tools, tasks = format_count(answer["tools"], "tool"), format_count(answer["tasks"], "task")
    counts = f"{tools}, {format_count(answer['queries'], 'query', 'queries')} and {tasks}"
    click.echo(f"Wrote {counts} to {printable(answer['folder'])}.")
