"""The worked examples of the guide run as they are printed, with the servers that it names."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from docs.generate import ROOT
from tests.servers.real import real_servers
from toolscript.app.app import App, open_app
from toolscript.configuration.files import load_configuration
from toolscript.domain.programs import Language, RunEnd, RunReport
from toolscript.domain.servers import CallRelay
from toolscript.services.code.host import RunCaller
from toolscript.services.code.run import RunRequest
from toolscript.settings import load_settings
from toolscript.surfaces.callers import OWNER

pytestmark = pytest.mark.req("C-01", "C-02")

GUIDE = (ROOT / "docs" / "guide" / "code-mode.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
SERVERS = ("filesystem", "memory", "time", "calculator")


@pytest.fixture(scope="module")
async def app(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("guide")
    entries = {name: entry for name, entry in real_servers(folder).items() if name in SERVERS}
    (folder / "files" / "prices.csv").write_text("item,price\ntea,3.5\nbread,2\n", encoding="utf-8")
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    settings = load_settings(
        variables={}, data_dir=folder / "data", search_model="hashed-64", index="memory:", code="python,typescript"
    )
    configuration = load_configuration(file, home=folder, folder=folder, environment={})
    async with open_app(settings) as opened:
        await opened.servers.gateway.apply(configuration.servers)
        await opened.servers.gateway.settle(60.0)
        yield opened


async def run(app: App, source: str) -> RunReport:
    report = await app.code.run_code.run(
        RunRequest(source, session="guide"), RunCaller(OWNER, CallRelay(user=""), may_search=True)
    )
    assert report.outcome.end is RunEnd.DONE, (report.outcome, report.problems)
    return report


async def test_the_example_in_typescript_reads_two_files(app: App) -> None:
    pytest.importorskip("deno", reason="Deno has no wheel for this platform")
    (source,) = re.findall(r"^```ts\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    report = await app.code.run_code.run(
        RunRequest(source, Language.TYPESCRIPT), RunCaller(OWNER, CallRelay(user=""), may_search=True)
    )
    assert (report.outcome.value, report.printed) == (2, "read 2\n"), (report.outcome, report.problems)


def test_there_are_five_examples() -> None:
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize(
    ("number", "value"),
    [(1, {"hello.txt": 4, "prices.csv": 3}), (2, 5.5), (3, ["hello.txt"]), (4, None)],
)
async def test_an_example_gives_what_it_says(app: App, number: int, value: Any) -> None:
    report = await run(app, EXAMPLES[number - 1])
    assert report.outcome.value == value
    if number == 3:
        assert report.printed.startswith("missing.txt: UPSTREAM_ERROR: ")
    if number == 4:
        assert (await run(app, 'await load_result("people")')).outcome.value == ["Ada"]


async def test_the_example_of_times_names_three_places(app: App) -> None:
    report = await run(app, EXAMPLES[4])
    assert list(report.outcome.value) == ["Europe/Lisbon", "Asia/Tokyo", "America/Lima"]
    assert all(re.fullmatch(r"\d\d:\d\d", each) for each in report.outcome.value.values())


async def test_the_mistake_of_the_guide_is_answered_as_it_says(app: App) -> None:
    source = 'name = "hello.txt"\nawait tools.filesystem.read_text_file({"pth": name})'
    caller = RunCaller(OWNER, CallRelay(user=""), may_search=True)
    report = await app.code.run_code.run(RunRequest(source), caller)
    (problem,) = report.problems
    assert problem.line == 2
    assert "Missing required key 'path' in TypedDict `FilesystemReadTextFileParams` constructor" in problem.message
    assert problem.signatures[0] in GUIDE
