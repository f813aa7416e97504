"""`toolscript eval`: how good the searches are, on sets of judged queries."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli import options
from toolscript.surfaces.logs import write_logs

if TYPE_CHECKING:
    from rich.console import Console

    from toolscript.evaluation.datasets import DocumentSet, ToolSet
    from toolscript.evaluation.metrics import Interval
    from toolscript.evaluation.run import Outcome

PIPELINES = ("hybrid", "rrf", "zscore", "semantic", "keyword")


@dataclass(frozen=True, slots=True)
class Measured:
    """A set's outcome, and the other pipeline's on the same queries."""

    data: ToolSet | DocumentSet
    ours: Outcome
    theirs: Outcome | None


@click.command("eval")
@click.argument("folders", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@click.option("--pipeline", type=click.Choice(PIPELINES), default="hybrid", help="What to measure.")
@click.option("--against", type=click.Choice(PIPELINES), help="A second pipeline, compared query by query.")
@options.model
@options.as_json
def evaluate(folders: tuple[Path, ...], pipeline: str, against: str | None, as_json: bool, **flags: Any) -> None:
    """Measure search quality: Hit@1, R@5, R@10, NDCG@10, C@10 and MRR, with 95 % bootstrap intervals.

    Each DIR holds tools.jsonl[.gz] or documents.jsonl, and queries.jsonl. Without one the demo set is measured.
    `answered` is the share of answerable queries that get any answer at the default threshold.

    \b
    toolscript eval sets/azure sets/metatool --pipeline hybrid --against semantic
    """
    from toolscript.evaluation.datasets import demo_folder, read_set

    chosen = folders or (demo_folder(),)
    same = {f.name for f in chosen if [g.name for g in chosen].count(f.name) > 1}
    sets = [replace(read_set(f), name=str(f)) if f.name in same else read_set(f) for f in chosen]
    with _own_folder(flags) as settings:
        measured = asyncio.run(_measure(settings, sets, pipeline, against))
    if as_json:
        click.echo(json.dumps(_json(measured, against)))
    else:
        _show(measured, pipeline, against)


@contextmanager
def _own_folder(flags: dict[str, Any]) -> Iterator[Settings]:
    """Settings with empty data folders: what is measured must not depend on what was indexed before."""
    with tempfile.TemporaryDirectory(prefix="toolscript-eval-") as folder:
        usual = load_settings(**flags)
        write_logs(usual.log_level)
        models = usual.data / "models"
        models.mkdir(parents=True, exist_ok=True)
        (Path(folder) / "models").symlink_to(models)
        yield replace(usual, data_dir=Path(folder), index="", store="")


async def _measure(
    settings: Settings, sets: list[ToolSet | DocumentSet], pipeline: str, against: str | None
) -> list[Measured]:
    from rich.console import Console

    from toolscript.app import open_app
    from toolscript.evaluation.run import Evaluation

    console = Console(stderr=True)
    done = []
    async with open_app(settings) as app:
        evaluation = Evaluation(app.sync, app.tool_search, app.ingest_documents, app.document_search)
        for data in sets:
            with console.status(f"Measuring {data.name}"):
                await evaluation.load(data)
                ours = await evaluation.run(data, pipeline)
                theirs = await evaluation.run(data, against) if against else None
            done.append(Measured(data, ours, theirs))
    return done


def _json(measured: list[Measured], against: str | None) -> dict[str, Any]:
    from toolscript.evaluation.metrics import difference

    answer: dict[str, Any] = {"sets": {m.data.name: _row(m.ours) for m in measured}}
    if against:
        answer["against"] = {
            "pipeline": against,
            "sets": {m.data.name: _row(m.theirs) for m in measured if m.theirs},
            "difference": {
                m.data.name: {n: [i.mean, i.low, i.high] for n, i in difference(m.ours.scores, m.theirs.scores).items()}
                for m in measured
                if m.theirs
            },
        }
    return answer


def _row(outcome: Outcome) -> dict[str, Any]:
    from toolscript.evaluation.metrics import mean

    row: dict[str, Any] = {
        **mean(outcome.scores),
        "queries": len(outcome.scores),
        "answered": outcome.answered,
    }
    if outcome.unanswerable:
        row["no_match"] = {"queries": outcome.unanswerable, "left_empty": outcome.left_empty}
    return row


def _show(measured: list[Measured], pipeline: str, against: str | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from toolscript.evaluation.metrics import NAMES, intervals

    console = Console(highlight=False)
    table = Table(title=f"pipeline {pipeline}", header_style="bold")
    for column in ("set", "queries", *NAMES, "answered", "no match: empty"):
        table.add_column(column, justify="left" if column == "set" else "right", no_wrap=column != "set")
    for m in measured:
        values = intervals(m.ours.scores)
        none = f"{m.ours.left_empty:.2f} of {m.ours.unanswerable}" if m.ours.unanswerable else "–"
        cells = [f"{values[n].mean:.3f}\n[dim]{values[n].low:.2f}–{values[n].high:.2f}[/]" for n in NAMES]
        table.add_row(m.data.name, str(len(m.ours.scores)), *cells, f"{m.ours.answered:.3f}", none)
    console.print(table)
    if against:
        _show_difference(console, measured, pipeline, against)


def _show_difference(console: Console, measured: list[Measured], pipeline: str, against: str) -> None:
    from rich.table import Table

    from toolscript.evaluation.metrics import NAMES, difference

    table = Table(title=f"{pipeline} minus {against}, query by query", header_style="bold")
    for column in ("set", *NAMES):
        table.add_column(column, justify="left" if column == "set" else "right", no_wrap=column != "set")
    for m in measured:
        if m.theirs:
            gained = difference(m.ours.scores, m.theirs.scores)
            table.add_row(m.data.name, *(_signed(gained[n]) for n in NAMES))
    console.print(table)


def _signed(interval: Interval) -> str:
    colour = "green" if interval.low > 0 else "red" if interval.high < 0 else "default"
    return f"[{colour}]{interval.mean:+.3f}[/]\n[dim]{interval.low:+.3f} to {interval.high:+.3f}[/]"
