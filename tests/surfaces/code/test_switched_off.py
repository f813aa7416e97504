"""Code mode is off until it is enabled, and says how to get it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from tests.fixtures.serving import serve
from tests.surfaces.code.conftest import CodeClient
from toolscript.app import code
from toolscript.app.app import open_app
from toolscript.app.code import describe_languages
from toolscript.domain.errors import Invalid
from toolscript.domain.programs import Language
from toolscript.settings import load_settings
from toolscript.surfaces.cli.main import run

pytestmark = pytest.mark.req("C-01")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[CodeClient]:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64", index="memory:", port=0)
    async with (
        open_app(settings, serving=True) as app,
        serve(app) as url,
        httpx.AsyncClient(base_url=url, timeout=60.0) as http,
    ):
        yield CodeClient(http, app)


async def test_without_the_setting_nothing_runs(client: CodeClient) -> None:
    error = (await client.run("1"))["error"]
    assert error["code"] == "NOT_FOUND"
    assert "set TOOLSCRIPT_CODE=python" in error["message"]
    assert "run_code" not in [tool["name"] for tool in (await client.send("tools/list"))["tools"]]
    texts, is_error = await client.call("run_code", code="1")
    assert is_error
    assert "no such tool: 'run_code'" in texts[0]
    health = (await client.http.get("/health")).json()
    assert health["code"]["python"] == "off: set TOOLSCRIPT_CODE=python"


@pytest.fixture
async def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CodeClient]:
    """A gateway that shall run programs, without the packages for that."""
    monkeypatch.setattr(code, "_is_installed", lambda _: False)
    languages = ",".join(Language)
    settings = load_settings(
        variables={}, data_dir=tmp_path, search_model="hashed-64", index="memory:", port=0, code=languages
    )
    async with (
        open_app(settings, serving=True) as app,
        serve(app) as url,
        httpx.AsyncClient(base_url=url, timeout=60.0) as http,
    ):
        yield CodeClient(http, app)


@pytest.mark.parametrize("language", list(Language))
async def test_without_the_extras_every_surface_says_how_to_get_them(bare: CodeClient, language: Language) -> None:
    install = f"pip install 'toolscript[code-{language}]'"
    tools = (await bare.send("tools/list"))["tools"]
    assert "run_code" not in [tool["name"] for tool in tools]
    assert all("output" not in tool["inputSchema"]["properties"] for tool in tools)
    assert (await bare.http.get("/health")).json()["code"][language] == f"not installed: {install}"
    message = f"this gateway runs no programs in {language}: not installed: {install}, where the gateway runs"
    assert (await bare.run("1", language=language))["error"]["message"] == message
    body = {"description": "One.", "language": language, "source": "return 1"}
    saved = await bare.http.put("/api/v1/workflows/one", json=body)
    assert saved.json()["error"]["message"] == message


@pytest.mark.parametrize("command", ["run", "workflows"])
def test_the_help_of_commands_says_how_to_enable_them(command: str) -> None:
    text = " ".join(CliRunner().invoke(run, [command, "--help"]).output.split())
    assert "`pip install 'toolscript[code-python]'` and TOOLSCRIPT_CODE=python, or `code-typescript` and " in text


def test_another_language_is_added_to_those_that_are_enabled() -> None:
    states = describe_languages(load_settings(variables={}, code="typescript"))
    assert states[Language.PYTHON].startswith("off: set TOOLSCRIPT_CODE=typescript,python")


def test_without_the_extra_its_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_is_installed", lambda _: False)
    install = "pip install 'toolscript[code-python]'"
    on, off = load_settings(variables={}, code="python"), load_settings(variables={})
    assert describe_languages(on)[Language.PYTHON] == f"not installed: {install}"
    assert describe_languages(off)[Language.PYTHON] == f"off: set TOOLSCRIPT_CODE=python after {install}"


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(Invalid, match="no such language: cobol: expected some of python, typescript"):
        describe_languages(load_settings(variables={}, code="python,cobol"))


async def test_arguments_for_programs_are_ignored(client: CodeClient) -> None:
    _, is_error = await client.call("search_tools", query="echo", output="json", language="ruby")
    assert not is_error
