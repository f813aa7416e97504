"""`toolscript eval`: measures search quality on sets of judged queries."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from toolscript.settings import Settings
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import open_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from toolscript.app.app import App
    from toolscript.evaluation.curve import Bucket
    from toolscript.evaluation.datasets import AnySet
    from toolscript.evaluation.metrics import Interval
    from toolscript.evaluation.run import EvaluationResult
    from toolscript.services.knowledge.ingest import IngestKnowledge

PIPELINES = (
    "hybrid",
    "rrf",
    "zscore",
    "semantic",
    "keyword",
    "baseline",
    "hierarchical",
    "direct",
    "hierarchical+direct",
)
MEAN_ROW = "mean of the sets"
MAX_NAME_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of a set, and that of the other pipeline on the same queries."""

    data: AnySet
    ours: EvaluationResult
    theirs: EvaluationResult | None


@click.command("eval")
@click.argument("folders", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@click.option(
    "--pipeline", type=click.Choice(PIPELINES), default="hybrid", show_default=True, help="Pipeline to measure."
)
@click.option("--against", type=click.Choice(PIPELINES), help="A second pipeline to compare with, query by query.")
@click.option("--curve", is_flag=True, help="Show the effect of every threshold, and how reliable confidences are.")
@options.model
@options.as_json
def evaluate(
    folders: tuple[Path, ...], pipeline: str, against: str | None, curve: bool, as_json: bool, **flags: Any
) -> None:
    """Measure search quality: Hit@1, R@5, R@10, NDCG@10, C@10 and MRR, with 95 % bootstrap intervals.

    Each DIR has tools.jsonl[.gz], documents.jsonl or books.toml, and queries.jsonl; without DIR the demo set is
    measured. Books are searched by meaning; any of the passages that answer a question counts. `answered` is the share
    of answerable queries with a result at the default threshold. `baseline` is rank fusion over the names and
    descriptions of tools. `hierarchical` searches skills first and then only their tools (`searched` is their share);
    `direct` searches all tools by meaning.

    \b
    toolscript eval sets/azure sets/metatool --pipeline hybrid --against baseline --curve
    """
    from toolscript.evaluation.datasets import demo_folder, read_set

    chosen = folders or (demo_folder(),)
    same = {f.name for f in chosen if [g.name for g in chosen].count(f.name) > 1}
    sets = [replace(read_set(f), name=str(f)) if f.name in same else read_set(f) for f in chosen]
    with _temporary_folder(flags) as settings:
        measured = asyncio.run(_measure(settings, sets, pipeline, against))
    if as_json:
        click.echo(json.dumps(_to_json(measured, against, curve)))
        return
    _show(measured, pipeline, against)
    if curve:
        _show_curve(_select_tool_outcomes(measured))


@contextmanager
def _temporary_folder(flags: dict[str, Any]) -> Iterator[Settings]:
    """Settings with an empty data folder: a measurement must not depend on what was indexed before."""
    with tempfile.TemporaryDirectory(prefix="toolscript-eval-") as folder:
        usual = read_settings(flags)
        models = usual.data / "models"
        models.mkdir(parents=True, exist_ok=True)
        (Path(folder) / "models").symlink_to(models)
        yield replace(usual, data_dir=Path(folder), index="", store="", knowledge="", plans=None, events=None)


async def _measure(settings: Settings, sets: list[AnySet], pipeline: str, against: str | None) -> list[Measurement]:
    from rich.console import Console

    from toolscript.app.app import open_app

    console = Console(stderr=True)
    done = []
    async with open_app(settings) as app:
        for data in sets:
            with console.status(f"Measuring {data.name}"):
                ours = await _evaluate_set(app, data, pipeline)
                theirs = await _evaluate_set(app, data, against) if against else None
            done.append(Measurement(data, ours, theirs))
    return done


async def _evaluate_set(app: App, data: AnySet, pipeline: str) -> EvaluationResult:
    from toolscript.evaluation.book_run import BookEvaluation
    from toolscript.evaluation.book_sets import BookSet
    from toolscript.evaluation.run import Evaluation

    if isinstance(data, BookSet):
        ingest = cast("IngestKnowledge", app.ingest_knowledge)  # None only in an application that serves
        return await BookEvaluation(ingest, app.knowledge_search).run(data, pipeline)
    evaluation = Evaluation(
        app.sync,
        app.tool_search,
        app.ingest_documents,
        app.document_search,
        app.hierarchical_search,
        app.skill_store.get_members,
    )
    return await evaluation.run(data, pipeline)


def _to_json(measured: list[Measurement], against: str | None, curve: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"sets": {m.data.name: _build_row(m.ours) for m in measured}}
    if against:
        answer["against"] = {
            "pipeline": against,
            "sets": {m.data.name: _build_row(m.theirs) for m in measured if m.theirs},
            "difference": {
                name: {n: [i.mean, i.low, i.high] for n, i in gained.items()}
                for name, gained in _compute_gains(measured)
            },
        }
    if curve:
        answer["curve"] = _curve_to_json(_select_tool_outcomes(measured))
    return answer


def _compute_gains(measured: list[Measurement]) -> Iterator[tuple[str, Mapping[str, Interval]]]:
    """The gain in each set, and the mean gain of several sets, which all have the same weight."""
    from toolscript.evaluation.metrics import difference_over

    pairs = [(m.data.name, (m.ours.scores, m.theirs.scores)) for m in measured if m.theirs]
    for name, pair in pairs:
        yield name, difference_over([pair])
    if len(pairs) > 1:
        yield MEAN_ROW, difference_over([pair for _, pair in pairs])


def _select_tool_outcomes(measured: list[Measurement]) -> dict[str, EvaluationResult]:
    """The outcomes of sets of tools. Documents have no threshold: their scores have no fixed scale."""
    return {m.data.name: m.ours for m in measured if m.ours.answerable}


def _build_row(outcome: EvaluationResult) -> dict[str, Any]:
    from toolscript.evaluation.metrics import mean

    row: dict[str, Any] = {**mean(outcome.scores), "queries": len(outcome.scores)}
    if outcome.answerable:
        row["answered"] = outcome.answered
    if outcome.searched:
        row["searched"] = outcome.share_searched
    if outcome.parts:
        row["parts"] = {name: {**mean(scores), "queries": len(scores)} for name, scores in outcome.parts.items()}
    if outcome.unanswerable:
        row["no_match"] = {"queries": len(outcome.unanswerable), "left_empty": outcome.left_empty}
    return row


def _show(measured: list[Measurement], pipeline: str, against: str | None) -> None:
    from rich.table import Table

    from toolscript.evaluation.metrics import NAMES, intervals, intervals_over

    console = open_console()
    table = Table(title=f"pipeline {pipeline}", header_style="bold")
    searched = any(m.ours.searched for m in measured)
    for column in ("set", "queries", *NAMES, "answered", "no match: empty", *(["searched"] if searched else [])):
        _add_column(table, column)
    for m in measured:
        values = intervals(m.ours.scores)
        none = f"{_format_share(m.ours.left_empty)} of {len(m.ours.unanswerable)}" if m.ours.unanswerable else "–"
        cells = [_format_interval(values[n]) for n in NAMES]
        shares = [_format_share(m.ours.answered), none, *([_format_share(m.ours.share_searched)] if searched else [])]
        table.add_row(m.data.name, str(len(m.ours.scores)), *cells, *shares)
        for name, scores in m.ours.parts.items():
            values = intervals(scores)
            table.add_row(f"  {name}", str(len(scores)), *(_format_interval(values[n]) for n in NAMES))
    if len(measured) > 1:
        over = intervals_over([m.ours.scores for m in measured])
        known = [m.ours.share_searched for m in measured if m.ours.share_searched is not None]
        mean_searched = [_format_share(sum(known) / len(known))] if known else []
        table.add_row(MEAN_ROW, "", *(_format_interval(over[n]) for n in NAMES), "", "", *mean_searched)
    console.print(table)
    if against:
        _show_difference(console, measured, pipeline, against)


def _show_difference(console: Console, measured: list[Measurement], pipeline: str, against: str) -> None:
    from rich.table import Table

    from toolscript.evaluation.metrics import NAMES

    table = Table(title=f"{pipeline} minus {against}, query by query", header_style="bold")
    for column in ("set", *NAMES):
        _add_column(table, column)
    for name, gained in _compute_gains(measured):
        table.add_row(name, *(_format_gain(gained[n]) for n in NAMES))
    console.print(table)


def _add_column(table: Table, column: str) -> None:
    """In a narrow terminal, figures are cut before names."""
    if column == "set":
        table.add_column(column, max_width=MAX_NAME_CHARACTERS, overflow="ellipsis", no_wrap=True)
    else:
        table.add_column(column, justify="right")


def _format_gain(interval: Interval) -> str:
    colour = "green" if interval.low > 0 else "red" if interval.high < 0 else "default"
    return f"[{colour}]{interval.mean:+.3f}[/]\n[dim]{interval.low:+.3f} to {interval.high:+.3f}[/]"


def _format_interval(interval: Interval) -> str:
    return f"{interval.mean:.3f}\n[dim]{interval.low:.2f}–{interval.high:.2f}[/]"


def _format_share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _curve_to_json(outcomes: Mapping[str, EvaluationResult]) -> dict[str, Any]:
    from toolscript.evaluation.curve import curve

    return {
        "sets": {
            name: [asdict(point) for point in curve(outcome.answerable, outcome.unanswerable)]
            for name, outcome in outcomes.items()
        },
        "reliability": [asdict(bucket) for bucket in _compute_reliability(outcomes)],
    }


def _show_curve(outcomes: Mapping[str, EvaluationResult]) -> None:
    from rich.table import Table

    from toolscript.evaluation.curve import curve

    console = open_console()
    table = Table(title="answered / correctly empty, by threshold", header_style="bold")
    for column in ("threshold", *outcomes):
        table.add_column(column, justify="right")
    for points in zip(*(curve(o.answerable, o.unanswerable) for o in outcomes.values()), strict=True):
        table.add_row(
            f"{points[0].threshold:.2f}",
            *(f"{_format_share(p.answered)} / {_format_share(p.left_empty)}" for p in points),
        )
    console.print(table)
    reliable = Table(title="reliability of confidences", header_style="bold")
    for column in ("confidence of the first hit", "queries", "correct"):
        reliable.add_column(column, justify="right")
    for bucket in _compute_reliability(outcomes):
        reliable.add_row(f"{bucket.low:.1f} to {bucket.high:.1f}", str(bucket.queries), f"{bucket.precision:.3f}")
    console.print(reliable)


def _compute_reliability(outcomes: Mapping[str, EvaluationResult]) -> list[Bucket]:
    from toolscript.evaluation.curve import reliability

    confidences = [c for o in outcomes.values() for c in [*o.answerable, *o.unanswerable]]
    firsts = [[s["hit@1"] > 0 for s in o.scores] + [False] * len(o.unanswerable) for o in outcomes.values()]
    return reliability(confidences, [right for of_set in firsts for right in of_set])
