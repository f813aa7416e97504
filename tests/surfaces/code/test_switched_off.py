"""Code mode is off until it is enabled, and says how to get it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.serving import serve
from tests.surfaces.code.conftest import CodeClient
from toolscript.app import code
from toolscript.app.app import open_app
from toolscript.app.code import describe_languages
from toolscript.domain.errors import Invalid
from toolscript.domain.programs import Language
from toolscript.settings import load_settings

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
