"""The command line of the MCP Inspector against the gateway, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.serving import serve
from tests.servers import make_scripted_spec
from tests.servers.real import ENVIRONMENT, NODE
from toolscript.app.app import open_app
from toolscript.configuration.files import load_configuration
from toolscript.settings import load_settings

INSPECTOR = ENVIRONMENT / "inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
TIMEOUT_SECONDS = 60.0

pytestmark = [
    pytest.mark.req("G-08"),
    pytest.mark.extended,
    pytest.mark.skipif(not INSPECTOR.exists(), reason="no MCP Inspector: `make test-all` installs it"),
]

REQUESTS: list[tuple[str, tuple[str, ...], str]] = [
    ("initialize", (), "serverInfo"),
    ("tools/list", ("--strict",), "search_tools"),
    ("tools/call", ("--tool-name", "describe_tool", "--tool-arg", "tool_id=scripted__echo"), "Returns its arguments"),
    ("prompts/list", (), "scripted__summarise"),
    ("prompts/get", ("--prompt-name", "scripted__summarise", "--prompt-args", "text=x"), "summarise {"),
    ("resources/list", (), "toolscript:scripted/memo://rules"),
    ("resources/read", ("--uri", "toolscript:scripted/memo://rules"), "What memo://rules holds"),
    ("resources/templates/list", (), "toolscript:scripted/memo://{year}/{month}"),
]


@pytest.fixture(scope="module")
async def url(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("inspector")
    servers = {"scripted": make_scripted_spec(prompts=True, resources=True)}
    (file := folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    given: dict[str, Any] = {"data_dir": folder / "data", "search_model": "hashed-64", "index": "memory:", "port": 0}
    configuration = load_configuration(file, home=folder, folder=folder, environment={})
    async with open_app(load_settings(variables={}, **given), serving=True) as app:
        await app.servers.gateway.apply(configuration.servers)
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        async with serve(app) as served:
            yield f"{served}/mcp"


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(("method", "options", "part"), REQUESTS)
async def test_the_inspector_gets_an_answer_without_a_complaint(
    url: str, tmp_path: Path, era: str, method: str, options: tuple[str, ...], part: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(INSPECTOR), "--cli", url, "--transport", "http", "--protocol-era", era, "--method", method),
        *options,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        output, complaints = await process.communicate()
    assert (process.returncode, complaints.decode()) == (0, "")
    assert part in output.decode()
