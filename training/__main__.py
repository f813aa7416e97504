"""The command line of the training room: collect, then prepare, tune, export, measure, or all of these; and fit, for
confidences.

`python -m training all --help` shows what the whole way needs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from training.weights import WEIGHTS

if TYPE_CHECKING:
    from training.recipe import Recipe

HERE = Path(__file__).parent
SOURCES = {
    "--tools": "files with tools, a JSON object a line (.jsonl or .jsonl.gz)",
    "--queries": "files with their queries; default: those of this folder",
    "--tasks": "files with tasks that need several tools",
    "--operations": "files with requests that differ in the operation, with near misses",
    "--catalogue": "files with further tools, without queries",
    "--sets": "folders of evaluation sets, never trained on",
}


def main(arguments: Sequence[str] | None = None) -> None:
    # cuBLAS gives the same numbers twice only with a workspace of fixed size, and reads this when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    options = _build_parser().parse_args(arguments)
    options.run(options)


def _run_collect(options: argparse.Namespace) -> None:
    from training.collect import collect

    found = collect(options.out, options.gateway, options.queries, options.key)
    if found.unknown:
        print(f"not in this catalogue, left out: {', '.join(found.unknown)}")
    print(f"wrote {len(found.tools)} tools, {len(found.queries)} of them with queries, and {len(found.tasks)} tasks")


def _run_prepare(options: argparse.Namespace) -> None:
    from training.prepare import prepare

    if not options.tools:
        raise SystemExit("--tools is required: the files with the tools of the queries")
    prepare(
        options.data,
        tools=options.tools,
        queries=options.queries or [HERE / "queries.jsonl"],
        operations=options.operations,
        servers=options.servers,
        tasks=options.tasks or ([] if options.queries else [HERE / "tasks.jsonl"]),
        catalogues=options.catalogue,
        sets=options.sets,
    )
    print(f"wrote {options.data}")


def _run_tune(options: argparse.Namespace) -> None:
    from training.data import read_prepared
    from training.recipe import LARGE, SMALL, train

    recipe = _choose_recipe(options, SMALL if options.teacher or not options.large else LARGE)
    train(read_prepared(options.data), options.base, recipe, teacher=options.teacher).save(
        options.out, half=options.half
    )
    print(f"wrote {options.out}")


def _run_export(options: argparse.Namespace) -> None:
    from training.export import CHECKSUMS, export

    parity = export(options.model, options.out, full=options.full, reference=options.reference)
    print(f"wrote {options.out}; lowest cosine between 32 and 8 bits {parity:.4f}")
    print((options.out / CHECKSUMS).read_text(encoding="utf-8"), end="")


def _run_measure(options: argparse.Namespace) -> None:
    from training.data import read_prepared
    from training.measure import format_scores, measure, open_onnx

    data = read_prepared(options.data)
    for folder in options.model:
        if (folder / WEIGHTS).is_file():
            from training.recipe import choose_device, open_encoder

            embed = open_encoder(folder, choose_device())
        else:
            embed = open_onnx(folder)
        print(f"{folder}: {format_scores(measure(embed, data, validate=options.validate), data)}", flush=True)


def _run_fit(options: argparse.Namespace) -> None:
    from toolscript.retrieval.learned_ranking import LEARNED
    from toolscript.services.tools.hybrid_search import DEFAULT_THRESHOLD
    from training.fit import cross_validate, fit_curve, fit_noise, write_ranking
    from training.judge import judge, read_catalogues, write_judged

    judged = judge(read_catalogues(options.sets, HERE / "requests", options.servers, options.catalogue), options.model)
    for name, each in judged.items():
        shares = ", ".join(f"{what} {value:.3f}" for what, value in cross_validate(each, DEFAULT_THRESHOLD).items())
        print(f"{name}: {len(each)} requests, each by curves of other catalogues: {shares}")
    curves = {name: fit_curve(each) for name, each in judged.items()}
    write_ranking(options.out, LEARNED, curves, fit_noise(judged["hybrid"], curves["hybrid"]))
    if options.judged:
        write_judged(options.judged, judged["hybrid"])
    print(f"wrote {options.out}")


def _run_sets(options: argparse.Namespace) -> None:
    from training.request_sets import write_request_sets

    folders = write_request_sets(
        options.out, HERE / "requests", servers=options.servers, tools=options.tools, catalogue=options.catalogue
    )
    print("wrote", *folders)


def _run_operations(options: argparse.Namespace) -> None:
    from training.operations import measure_operations

    shares = measure_operations(options.requests, servers=options.servers, tools=options.tools, model=options.model)
    print(", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items()))


def _run_relevance(options: argparse.Namespace) -> None:
    from training.relevance import fit_relevance, judge_hits, write_relevance

    write_relevance(options.out, fit_relevance(judge_hits(options.sets, HERE / "requests", options.work)))
    print(f"wrote {options.out}")


def _run_all(options: argparse.Namespace) -> None:
    from training.data import read_prepared
    from training.recipe import LARGE, SMALL, train

    if options.tools:
        _run_prepare(options)
    data, folders, teacher = read_prepared(options.data), [], options.teacher
    if options.teacher_base:
        recipe = replace(LARGE, device=_choose_device(options), validate=options.validate)
        teacher = options.out / "large"
        train(data, options.teacher_base, recipe).save(teacher, half=options.half)
        folders.append(teacher)
    tuned = options.out / "small"
    recipe = _choose_recipe(options, SMALL)
    train(data, options.base, recipe, teacher=teacher).save(tuned, half=options.half)
    exported = options.out / "toolscript-small"
    options.model, options.out = tuned, exported
    _run_export(options)
    options.model = [*folders, tuned, exported]
    _run_measure(options)


def _choose_recipe(options: argparse.Namespace, recipe: Recipe) -> Recipe:
    """The recipe with what the command line changes in it."""
    names = (
        "steps",
        "size",
        "rate",
        "label_weight",
        "teacher_weight",
        "align_weight",
        "keep_weight",
        "unlabelled",
        "near_misses",
        "int8",
    )
    changed = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return replace(
        recipe,
        plan=replace(recipe.plan, **changed),
        seeds=tuple(options.seeds or recipe.seeds),
        original_share=recipe.original_share if options.original_share is None else options.original_share,
        validate=options.validate,
        device=_choose_device(options),
    )


def _choose_device(options: argparse.Namespace) -> str:
    from training.recipe import choose_device

    return options.device or choose_device()


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    collect = commands.add_parser("collect", help="write the tools of a running gateway, with judged queries for them")
    prepare = commands.add_parser("prepare", help="write tools, queries and evaluation sets into one file")
    tune = commands.add_parser("tune", help="tune a base model on the prepared file")
    export = commands.add_parser("export", help="export a tuned model to ONNX with 8 bits")
    measure = commands.add_parser("measure", help="measure tuned or exported models")
    fit = commands.add_parser("fit", help="fit the curves of confidences, with the packaged model or another one")
    relevance = commands.add_parser("relevance", help="fit the curves of relevances in documents")
    sets = commands.add_parser("sets", help="write the requests of this folder as evaluation sets")
    operations = commands.add_parser("operations", help="measure requests that differ in the operation only")
    everything = commands.add_parser("all", help="all of it: prepare (with --tools), tune, export, measure")
    for command, run in zip(
        (collect, prepare, tune, export, measure, fit, relevance, sets, operations, everything),
        (
            _run_collect,
            _run_prepare,
            _run_tune,
            _run_export,
            _run_measure,
            _run_fit,
            _run_relevance,
            _run_sets,
            _run_operations,
            _run_all,
        ),
        strict=True,
    ):
        command.set_defaults(run=run)
    collect.add_argument("--gateway", default="http://127.0.0.1:3780", help="its address; default: %(default)s")
    collect.add_argument("--key", help="a key with the scope search, if the gateway requires one")
    collect.add_argument(
        "--queries", type=Path, nargs="+", default=[], help="judged queries, as `toolscript eval` reads"
    )
    for command in (prepare, tune, measure, everything):
        command.add_argument("--data", type=Path, required=True, help="the prepared file (.json.gz)")
    for command in (prepare, everything):
        _add_sources(command)
        command.add_argument("--servers", type=Path, help="folder of the servers that the operations name")
    for command in (tune, everything):
        _add_plan(command)
    for command in (tune, measure, everything):
        command.add_argument("--validate", action="store_true", help="hold whole servers out, and measure on them")
    for name in ("--catalogue", "--sets"):
        fit.add_argument(name, type=Path, nargs="+", default=[], help=SOURCES[name])
    fit.add_argument("--servers", type=Path, required=True, help="folder of the servers that requests/ names")
    fit.add_argument("--judged", type=Path, help="file for the judgements of searches by meaning and words (.jsonl.gz)")
    fit.add_argument("--model", help="name or folder of a model; default: the packaged one")
    relevance.add_argument("--sets", type=Path, nargs="+", required=True, help="folders of judged documents")
    relevance.add_argument("--work", type=Path, help="data folder that keeps embedded documents; default: none is kept")
    relevance.add_argument("--out", type=Path, required=True, help="the file to write, such as relevance.toml")
    fit.add_argument("--out", type=Path, required=True, help="the file to write, such as ranking.toml")
    for command in (sets, operations):
        command.add_argument("--servers", type=Path, required=True, help="folder of the servers that requests/ names")
        command.add_argument("--tools", type=Path, nargs="+", required=True, help=SOURCES["--tools"])
    sets.add_argument("--catalogue", type=Path, nargs="+", required=True, help="files with the operations of APIs")
    operations.add_argument("--requests", type=Path, nargs="+", required=True, help=SOURCES["--operations"])
    operations.add_argument("--model", help="name or folder of a model; default: the packaged one")
    for command in (collect, sets, tune, export, everything):
        command.add_argument("--out", type=Path, required=True, help="the folder to write")
    for command in (export, everything):
        command.add_argument("--full", action="store_true", help="keep the ONNX file of 32 bits too")
        command.add_argument(
            "--reference", type=Path, help="file for vectors of 32 bits, to test the model with (.npy)"
        )
    tune.add_argument("--large", action="store_true", help="the recipe of teachers: fewer steps, smaller batches")
    everything.add_argument("--teacher-base", type=Path, help="a larger base model to tune first, as the teacher")
    export.add_argument("--model", type=Path, required=True, help="the folder of a tuned model")
    measure.add_argument("--model", type=Path, required=True, nargs="+", help="folders of tuned or exported models")
    return parser


def _add_sources(command: argparse.ArgumentParser) -> None:
    for name, text in SOURCES.items():
        command.add_argument(name, type=Path, nargs="+", default=[], help=text)


def _add_plan(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--base", type=Path, required=True, help="folder of the base model: BERT or MPNet, mean pooling"
    )
    command.add_argument("--teacher", type=Path, help="folder of a tuned teacher")
    command.add_argument("--steps", type=int)
    command.add_argument("--size", type=int, help="pairs in a batch")
    command.add_argument("--rate", type=float, help="learning rate")
    command.add_argument("--label-weight", type=float, help="weight of the labelled pairs")
    command.add_argument("--teacher-weight", type=float, help="weight of the teacher's similarities")
    command.add_argument("--align-weight", type=float, help="weight of the distance from the teacher's vectors")
    command.add_argument("--near-misses", type=int, help="requests with a near miss in a batch")
    command.add_argument("--keep-weight", type=float, help="weight of the base's similarities between plain texts")
    command.add_argument("--unlabelled", type=int, help="pairs in a batch that only the teacher judges")
    command.add_argument("--int8", action=argparse.BooleanOptionalAction, default=None, help="tune for 8 bits")
    command.add_argument("--seeds", type=int, nargs="+", help="one run each; the result is their mean")
    command.add_argument("--original-share", type=float, help="share of the base's own weights in the result")
    command.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU if there is one")
    command.add_argument("--half", action="store_true", help="write tuned weights with 16 bits")


if __name__ == "__main__":
    main()
