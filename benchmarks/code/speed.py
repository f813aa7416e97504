"""Times programs from start to result, beside what they are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.timing import Row, Sample, Table, compare_table, measure_seconds
from tests.servers import make_scripted_server
from toolscript.adapters.onnx.model_folders import PACKAGED
from toolscript.app.app import App, open_app
from toolscript.domain.programs import Language, RunEnd
from toolscript.domain.servers import CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.services.code.run import RunRequest
from toolscript.settings import load_settings
from toolscript.surfaces.callers import OWNER

NOTE = (
    "From the request to the report, with the check of types (a program that runs *again* is not checked again), in "
    "the process of the gateway; servers and sandboxes run already, and programs in TypeScript come after a pause of "
    "0.7 s, in which the process of the next one starts. Beside a call of the same tool alone; ten calls together "
    "beside one of them."
)
SLOW = {"seconds": 0.1}
WARM_UPS = 2
# A process for the next program in TypeScript is started while nobody waits for it.
PAUSE_SECONDS = {Language.PYTHON: 0.0, Language.TYPESCRIPT: 0.7}
PROGRAMS: Mapping[Language, Mapping[str, str]] = {
    Language.PYTHON: {
        "trivial": "1 + 1",
        "call": 'await tools.box.echo({"text": "a"})',
        "together": (
            'import asyncio\nawait asyncio.gather(*[tools.box.slow({"seconds": 0.1}) for _ in range(10)])\nreturn 1'
        ),
    },
    Language.TYPESCRIPT: {
        "trivial": "return 1 + 1;",
        "call": 'return await tools.box.echo({ text: "a" });',
        "together": (
            "await Promise.all(Array.from({ length: 10 }, () => tools.box.slow({ seconds: 0.1 })));\nreturn 1;"
        ),
    },
}
COMMENTS = {Language.PYTHON: "#", Language.TYPESCRIPT: "//"}
WHATS = {"trivial": "A trivial program", "call": "One call of a tool", "together": "Ten calls of 100 ms together"}


async def run(quick: bool) -> list[Table]:
    """The times of three programs in each language that is there."""
    with TemporaryDirectory() as folder:
        settings = load_settings(
            variables={}, data_dir=Path(folder), search_model=PACKAGED, code=",".join(PROGRAMS), audit="false"
        )
        async with open_app(settings) as app:
            await app.servers.gateway.apply([make_scripted_server("box", tools=["echo", "slow"])])
            await app.servers.gateway.settle(60)
            rows = [
                await _time(app, language, kind, 5 if quick else 20, is_new=is_new)
                for language in app.code.languages
                for kind, is_new in (("trivial", True), ("call", True), ("together", True), ("together", False))
            ]
    return [compare_table("Programs", rows, NOTE)]


async def _time(app: App, language: Language, kind: str, count: int, *, is_new: bool) -> Row:
    source = PROGRAMS[language][kind]
    tool, arguments = ("box__slow", SLOW) if kind == "together" else ("box__echo", {"text": "a"})
    relay = CallRelay(user="")

    async def run_program(number: int) -> None:
        request = RunRequest(f"{source}\n{COMMENTS[language]} {number if is_new else 0}", language)
        report = await app.code.run_code.run(request, RunCaller(OWNER, relay, may_search=True))
        if report.outcome.end is not RunEnd.DONE:
            raise SystemExit(f"{kind} in {language}: {report.outcome.message}")

    async def call_tool(_: int) -> Any:
        return await app.tools.call.call(tool, arguments, relay=relay)

    mine, alone = [], []
    for number in range(-WARM_UPS, count):
        await asyncio.sleep(PAUSE_SECONDS[language])
        times = await measure_seconds(run_program, number), await measure_seconds(call_tool, number)
        if number >= 0:
            mine.append(times[0])
            alone.append(times[1])
    what = WHATS[kind] if is_new else f"{WHATS[kind]}, again"
    return Row(what, language.value, Sample(mine), "one call alone", Sample(alone))
