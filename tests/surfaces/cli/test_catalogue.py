"""`toolscript catalogue check`, and the same over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from tests.fixtures.command_line import invoke, run_json
from tests.fixtures.examples import choose
from tests.servers.chat import ChatApi, says
from toolscript.app.app import App
from toolscript.domain.access import Scope
from toolscript.domain.catalog import Item
from toolscript.services.catalogue_check import check, findings
from toolscript.surfaces.cli.commands import catalogue
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

PATH = "/api/v1/catalogue/check"
TOOL = "git__git_commit"
BETTER = "Records the staged changes as a new version."


@pytest.mark.parametrize("with_gateway", choose([False, True], True))
def test_the_check_exits_with_3_for_errors_and_prints_overrides(
    demo_folder: Path, start_gateway: Callable[[], None], with_gateway: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatApi([says({"1": {"description": BETTER}})]) as api:
        monkeypatch.setenv("TOOLSCRIPT_LLM_URL", api.url)
        monkeypatch.setenv("TOOLSCRIPT_LLM_MODEL", "scripted")
        if with_gateway:
            start_gateway()
        assert "No tool is mistaken for another" in invoke("catalogue", "check", "--similarity", "1").output
        for request in ("weather in Rome", "weather in Oslo"):
            invoke("feedback", "mark", TOOL, request)
        output = invoke("catalogue", "check", "--similarity", "1", "--propose", "1", code=3).output
        assert "2 of 2 requests" in output
        assert "not measured: needs 8 recorded requests, has 2" in output
        override = json.loads(output.partition("For the entry of the server git, if you agree:")[2])
        assert override == {"tools": {"git_commit": {"description": BETTER}}}
        answer = run_json("catalogue", "check", "--similarity", "1", "--propose", "1", code=3)
    assert (answer["ok"], answer["errors"], answer["requests"]) == (False, 1, 2)
    assert answer["proposals"][0]["override"] == override


def test_proposals_need_a_language_model_and_options_their_range(demo_folder: Path) -> None:
    assert "TOOLSCRIPT_LLM_URL" in invoke("catalogue", "check", "--propose", "1", code=3).output
    assert "0<=x<=20" in invoke("catalogue", "check", "--propose", "21", code=2).output
    assert "out of range" in invoke("catalogue", "check", "--similarity", "nan", code=2).output


def test_the_command_has_the_defaults_of_the_service() -> None:
    assert (catalogue.MAX_PROPOSALS, catalogue.DEFAULT_SIMILARITY) == (check.MAX_PROPOSALS, findings.DEFAULT_SIMILARITY)


@pytest.fixture
async def http(app: App) -> AsyncIterator[httpx.AsyncClient]:
    await app.catalogue.sync.run([Item("zoo", "feed"), Item("zoo", "open", "Opens the doors.")])
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_http_needs_the_scope_admin_and_values_in_range(app: App, http: httpx.AsyncClient) -> None:
    answer = (await http.get(PATH)).json()
    assert [(each["tools"], each["level"]) for each in answer["findings"]] == [(["zoo__feed"], "error")]
    for query in ("similarity=0.1", "similarity=nan", "proposals=21", "proposals=-1", "propose=3"):
        assert (await http.get(f"{PATH}?{query}")).status_code in (400, 422), query
    assert (await http.get(PATH, params={"proposals": 1})).status_code == 503
    _, secret = await app.access.keys.create("searcher", [Scope.SEARCH])
    http.headers["Authorization"] = f"Bearer {secret}"
    assert (await http.get(PATH)).status_code == 403
