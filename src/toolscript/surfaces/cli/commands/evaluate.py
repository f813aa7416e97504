"""`toolscript eval`: measures search quality on sets of judged queries."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscript.settings import Settings
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import open_console
from toolscript.surfaces.cli.terminal.text import format_count

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.evaluation.datasets import AnySet
    from toolscript.evaluation.metrics import Bucket, Interval, Scores
    from toolscript.evaluation.run import EvaluationResult

TEXT_PIPELINES = ("hybrid", "rrf", "zscore", "semantic", "keyword", "baseline")
PIPELINES = (*TEXT_PIPELINES, "hierarchical", "direct", "hierarchical+direct")
MEAN_ROW = "mean of the sets"
PATH = "/api/v1/evaluate"
# Of a hundred queries, on a busy machine.
TIMEOUT_SECONDS = 600.0
MAX_NAME_CHARACTERS = 24
MAX_REASONS = 5


@dataclass(frozen=True, slots=True)
class Measurement:
    """The outcome of a set, and the outcome of the other pipeline on the same queries."""

    name: str
    ours: EvaluationResult
    theirs: EvaluationResult | None


@click.command("eval")
@click.argument("folders", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@click.option(
    "--pipeline", type=click.Choice(PIPELINES), default="hybrid", show_default=True, help="Pipeline to measure."
)
@click.option("--against", type=click.Choice(PIPELINES), help="A second pipeline to compare with, query by query.")
@click.option(
    "--live", is_flag=True, help="Measure on the catalogue of this installation; DIR needs queries.jsonl only."
)
@click.option("--curve", is_flag=True, help="Show the effect of every threshold, and how reliable confidences are.")
@options.model
@options.as_json
def evaluate(folders: tuple[Path, ...], pipeline: str, against: str | None, live: bool, curve: bool) -> None:
    """Measure search quality with judged queries.

    Prints Hit@1, R@5, R@10, NDCG@10, C@10 and MRR, with 95 % bootstrap intervals.

    Each DIR has tools.jsonl[.gz], documents.jsonl or books.toml, and queries.jsonl; without DIR the demo set is
    measured. Books are searched by meaning; any of the passages that answer a question counts. `answered` is the share
    of answerable queries with a result at the default threshold. `baseline` is rank fusion over the names and
    descriptions of tools. `hierarchical` searches skills first and then only their tools (`searched` is their share);
    `direct` searches all tools. A query that cannot be searched (blank, or too long) scores zero; the output says how
    many there are, and why.

    --live searches your own tools, with all that is known and was learnt of them, in the running gateway, or in the
    data folder. The console's page Quality gives the same figures, and saves its queries for it.

    \b
    toolscript eval sets/azure --pipeline hybrid --against baseline --curve
    toolscript eval my-queries --live
    """
    from toolscript.evaluation.metrics import NAMES

    measured = _measure_live(folders, pipeline, against) if live else _measure_sets(folders, pipeline, against)
    # Documents have no threshold: their scores have no fixed scale.
    outcomes = {m.name: m.ours for m in measured if m.ours.answerable} if curve else None
    if options.is_json():
        click.echo(json.dumps(_to_json(measured, against, outcomes)))
        return
    _show(measured, pipeline)
    if against:
        rows = [[name, *map(_format_gain, gained.values())] for name, gained in _compute_gains(measured)]
        _print_figures(f"{pipeline} minus {against}, query by query", ("set", *NAMES), rows)
    for m in measured:
        _show_not_searched(m.name, pipeline, m.ours)
        if against and m.theirs:
            _show_not_searched(m.name, against, m.theirs)
    if outcomes is not None:
        _show_curve(outcomes)


def _measure_live(folders: Sequence[Path], pipeline: str, against: str | None) -> list[Measurement]:
    """Measures queries on the catalogue of this installation. Raises Invalid."""
    from toolscript.evaluation.datasets import JudgedQuery, read_judged_set
    from toolscript.evaluation.live import MAX_QUERIES, measure_queries
    from toolscript.evaluation.run import EvaluationResult
    from toolscript.surfaces.json.evaluation import build_evaluation_response

    if not folders or pipeline != PIPELINES[0] or against:
        raise click.UsageError("--live needs DIR, and measures the pipeline hybrid only.")
    sets = dict(zip(_name_sets(folders), map(read_judged_set, folders), strict=True))

    async def use(session: CommandSession) -> list[Measurement]:
        async def ask(queries: Sequence[JudgedQuery]) -> list[Any]:
            async def local(app: App) -> Any:
                return build_evaluation_response(await measure_queries(app.tools.search, queries))

            body = [
                {"query": q.text, "relevant": list(q.grades), "groups": [sorted(group) for group in q.groups]}
                for q in queries
            ]
            answer = await session.request(PATH, local, body={"queries": body}, timeout_seconds=TIMEOUT_SECONDS)
            return list(answer["results"])

        done = []
        for name, queries in sets.items():
            parts = [await ask(queries[n : n + MAX_QUERIES]) for n in range(0, len(queries), MAX_QUERIES)]
            found = [each for part in parts for each in part]
            right, none = [e for e in found if e["scores"]], [e for e in found if not e["scores"]]
            outcome = EvaluationResult(
                [e["scores"] for e in right],
                [e["confidence"] for e in right],
                [e["confidence"] for e in none],
                session.settings.search_threshold,
                are_shown=[e["is_shown"] for e in right],
                are_silent=[e["is_silent"] for e in right],
                not_searched=Counter(e["problem"] for e in found if e["problem"]),
            )
            done.append(Measurement(name, outcome, None))
        return done

    return run_in_session(read_settings(), use)


def _measure_sets(folders: Sequence[Path], pipeline: str, against: str | None) -> list[Measurement]:
    from toolscript.evaluation.datasets import demo_folder, read_set

    chosen = folders or (demo_folder(),)
    sets = [replace(read_set(f), name=name) for f, name in zip(chosen, _name_sets(chosen), strict=True)]
    with _temporary_folder() as settings:
        return asyncio.run(_measure(settings, sets, pipeline, against))


def _name_sets(folders: Sequence[Path]) -> list[str]:
    """The names of the folders, with their paths where two have the same name."""
    names = [folder.resolve().name for folder in folders]
    return [str(folder) if names.count(name) > 1 else name for folder, name in zip(folders, names, strict=True)]


@contextmanager
def _temporary_folder() -> Iterator[Settings]:
    """Settings with an empty data folder: a measurement must not depend on what was indexed before."""
    with tempfile.TemporaryDirectory(prefix="toolscript-eval-") as folder:
        usual = read_settings()
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
            done.append(Measurement(data.name, ours, theirs))
    return done


async def _evaluate_set(app: App, data: AnySet, pipeline: str) -> EvaluationResult:
    from toolscript.evaluation.datasets import BookSet
    from toolscript.evaluation.run import Evaluation, evaluate_books

    if isinstance(data, BookSet):
        ingest = app.texts.ingest_knowledge
        return await evaluate_books(ingest, app.texts.knowledge_search, data, pipeline)
    evaluation = Evaluation(
        app.catalogue.sync,
        app.tools.search,
        app.texts.ingest_documents,
        app.texts.document_search,
        app.tools.hierarchical_search,
    )
    return await evaluation.run(data, pipeline)


def _to_json(
    measured: list[Measurement], against: str | None, outcomes: Mapping[str, EvaluationResult] | None
) -> dict[str, Any]:
    from toolscript.evaluation.metrics import curve

    answer: dict[str, Any] = {"sets": {m.name: _build_row(m.ours) for m in measured}}
    if against:
        answer["against"] = {
            "pipeline": against,
            "sets": {m.name: _build_row(m.theirs) for m in measured if m.theirs},
            "difference": {
                name: {n: [i.mean, i.low, i.high] for n, i in gained.items()}
                for name, gained in _compute_gains(measured)
            },
        }
    if outcomes is not None:
        answer["curve"] = {
            "sets": {name: [asdict(p) for p in curve(o.answerable, o.unanswerable)] for name, o in outcomes.items()},
            "reliability": [asdict(bucket) for bucket in _compute_reliability(outcomes)],
        }
    return answer


def _build_row(outcome: EvaluationResult) -> dict[str, Any]:
    from toolscript.evaluation.metrics import mean

    row: dict[str, Any] = {**mean(outcome.scores), "queries": len(outcome.scores)}
    if outcome.answerable:
        row["answered"] = outcome.answered
    if outcome.are_shown:
        row["shown"], row["silent"] = outcome.shown, outcome.silent
    if outcome.searched:
        row["searched"] = outcome.share_searched
    if outcome.parts:
        row["parts"] = {name: {**mean(scores), "queries": len(scores)} for name, scores in outcome.parts.items()}
    if outcome.unanswerable:
        row["no_match"] = {"queries": len(outcome.unanswerable), "left_empty": outcome.left_empty}
    if outcome.not_searched:
        row["not_searched"] = {"queries": sum(outcome.not_searched.values()), "reasons": outcome.not_searched}
    return row


def _compute_gains(measured: list[Measurement]) -> Iterator[tuple[str, Mapping[str, Interval]]]:
    """The gain in each set, and the mean gain of several sets, all with the same weight."""
    from toolscript.evaluation.metrics import difference

    pairs = [(m.name, (m.ours.scores, m.theirs.scores)) for m in measured if m.theirs]
    for name, pair in pairs:
        yield name, difference(pair)
    if len(pairs) > 1:
        yield MEAN_ROW, difference(*(pair for _, pair in pairs))


def _compute_reliability(outcomes: Mapping[str, EvaluationResult]) -> list[Bucket]:
    from toolscript.evaluation.metrics import reliability

    confidences = [c for o in outcomes.values() for c in [*o.answerable, *o.unanswerable]]
    firsts = [[s["hit@1"] > 0 for s in o.scores] + [False] * len(o.unanswerable) for o in outcomes.values()]
    return reliability(confidences, [right for of_set in firsts for right in of_set])


def _show(measured: list[Measurement], pipeline: str) -> None:
    from toolscript.evaluation.metrics import NAMES, intervals

    def format_means(*sets: list[Scores]) -> list[str]:
        return [f"{i.mean:.3f}\n[dim]{i.low:.2f}–{i.high:.2f}[/]" for i in intervals(*sets).values()]

    rows = []
    for m in measured:
        empty = f"{_format_share(m.ours.left_empty)} of {len(m.ours.unanswerable)}" if m.ours.unanswerable else "–"
        shares = [
            *(_format_share(share) for share in (m.ours.answered, m.ours.shown)),
            empty,
            _format_share(m.ours.share_searched),
        ]
        rows.append([m.name, str(len(m.ours.scores)), *format_means(m.ours.scores), *shares])
        rows += [[f"  {name}", str(len(each)), *format_means(each)] for name, each in m.ours.parts.items()]
    searched = [m.ours.share_searched for m in measured if m.ours.share_searched is not None]
    if len(measured) > 1:
        means = format_means(*(m.ours.scores for m in measured))
        rows.append(
            [MEAN_ROW, "", *means, "", "", "", _format_share(sum(searched) / len(searched)) if searched else ""]
        )
    columns = ["set", "queries", *NAMES, "answered", "shown", "no match: empty", "searched"]
    _print_figures(f"pipeline {pipeline}", columns if searched else columns[:-1], rows)


def _show_not_searched(name: str, pipeline: str, outcome: EvaluationResult) -> None:
    total = sum(outcome.not_searched.values())
    if not total:
        return
    queries = format_count(len(outcome.scores) + len(outcome.unanswerable), "query", "queries")
    click.echo(f"{name}, {pipeline}: {total} of {queries} not searched")
    reasons = sorted(outcome.not_searched.items(), key=lambda reason: (-reason[1], reason[0]))
    for reason, count in reasons[:MAX_REASONS]:
        click.echo(f"  {count} × {reason}")
    if len(reasons) > MAX_REASONS:
        click.echo(f"  … and {len(reasons) - MAX_REASONS} more reasons (--json has all)")


def _show_curve(outcomes: Mapping[str, EvaluationResult]) -> None:
    from toolscript.evaluation.metrics import curve

    curves = [curve(o.answerable, o.unanswerable) for o in outcomes.values()]
    rows = [
        [f"{at[0].threshold:.2f}", *(f"{_format_share(p.answered)} / {_format_share(p.left_empty)}" for p in at)]
        for at in zip(*curves, strict=True)
    ]
    _print_figures("answered / correctly empty, by threshold", ("threshold", *outcomes), rows)
    rows = [
        [f"{bucket.low:.1f} to {bucket.high:.1f}", str(bucket.queries), f"{bucket.precision:.3f}"]
        for bucket in _compute_reliability(outcomes)
    ]
    _print_figures("reliability of confidences", ("confidence of the first hit", "queries", "correct"), rows)


def _print_figures(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table with markup in its cells. In a narrow terminal, figures are cut off before names of sets."""
    from rich.table import Table

    table = Table(title=title, header_style="bold")
    for column in columns:
        if column == "set":
            table.add_column(column, max_width=MAX_NAME_CHARACTERS, overflow="ellipsis", no_wrap=True)
        else:
            table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row[: len(columns)])
    open_console().print(table)


def _format_gain(interval: Interval) -> str:
    colour = "green" if interval.low > 0 else "red" if interval.high < 0 else "default"
    return f"[{colour}]{interval.mean:+.3f}[/]\n[dim]{interval.low:+.3f} to {interval.high:+.3f}[/]"


def _format_share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
