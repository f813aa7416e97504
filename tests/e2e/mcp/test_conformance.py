"""MCP's conformance suite against the gateway: as it is, and with a server behind it that its scenarios fit."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.fixtures.serving import serve
from tests.servers import suite
from tests.servers.real import MODULES, NODE
from tests.servers.suite import relay_names
from toolscript.app.app import open_app
from toolscript.configuration.files import load_configuration
from toolscript.settings import load_settings

pytestmark = pytest.mark.req("G-08")

TIMEOUT_SECONDS = 120.0
SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

NO_LOGS = "log messages of servers are not passed on: 2026-07-28 deprecates them"
OLDER_HTTP = "over HTTP, without sessions, an older client has no connection on which a server could ask or notify it"
NO_SESSIONS = "it needs a session, which the gateway does not have: a restart must not end one"
OWN_TOOLS = "an agent sees our own tools: describe_tool returns the schemas of all others"
# What the suite expects of every server and a gateway without sessions does not have, in both runs.
NEVER: dict[str, str] = {
    "logging-set-level": NO_LOGS,
    "tools-call-with-logging": NO_LOGS,
    "tools-call-sampling": OLDER_HTTP,
    "tools-call-elicitation": OLDER_HTTP,
    "elicitation-sep1034-defaults": OLDER_HTTP,
    "elicitation-sep1330-enums": OLDER_HTTP,
    "resources-subscribe": OLDER_HTTP,
    "resources-unsubscribe": OLDER_HTTP,
    "json-schema-2020-12": OWN_TOOLS,
    "server-sse-polling": NO_SESSIONS,
    "server-sse-multiple-streams": NO_SESSIONS,
}
ITS_NAMES = "it is about tools, prompts and resources with names of the suite"
WITHOUT_ITS_SERVER = NEVER | dict.fromkeys(
    (
        "completion-complete",
        "tools-call-image",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-with-progress",
        "resources-read-text",
        "resources-read-binary",
        "resources-templates-read",
        "prompts-get-simple",
        "prompts-get-with-args",
        "prompts-get-embedded-resource",
        "prompts-get-with-image",
    ),
    ITS_NAMES,
)
# The other run has this scenario without the relay.
BEHIND_A_RELAY = NEVER | {"dns-rebinding-protection": "the relay between the suite and the gateway checks no hosts"}


@pytest.fixture(scope="module")
async def url(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A gateway with the suite's server behind it."""
    folder = tmp_path_factory.mktemp("conformance")
    servers = {suite.NAME: {"command": sys.executable, "args": ["-I", "-S", suite.__file__]}}
    (file := folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    given = {"data_dir": folder / "data", "search_model": "hashed-64", "index": "memory:", "port": 0}
    configuration = load_configuration(file, home=folder, folder=folder, environment={})
    async with open_app(load_settings(variables={}, **given), serving=True) as app:
        await app.servers.gateway.apply(configuration.servers)
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        async with serve(app) as served:
            yield served


async def run_suite(url: str, folder: Path, expected: Mapping[str, str]) -> set[str]:
    """The scenarios that passed. Fails unless those fail that are expected to, and no others."""
    baseline = folder / "expected.yml"
    baseline.write_text("server:\n" + "".join(f"  - {name}\n" for name in expected))
    arguments = ("server", "--url", url, "--suite", "all", "--expected-failures", str(baseline))
    process = await asyncio.create_subprocess_exec(
        str(NODE), str(SUITE), *arguments, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        output = (await process.communicate())[0].decode()
    assert process.returncode == 0, output
    results = dict(re.findall(r"^\S ([a-z0-9-]+): (\d+ passed, \d+ failed)", output, re.MULTILINE))
    assert results.keys() > expected.keys()
    return results.keys() - expected.keys()


async def test_the_gateway_passes_the_suite_where_it_needs_no_server_of_its_own(url: str, tmp_path: Path) -> None:
    passed = await run_suite(f"{url}/mcp", tmp_path, WITHOUT_ITS_SERVER)
    assert passed == {
        "server-initialize",
        "ping",
        "tools-list",
        "tools-call-simple-text",  # any text
        "tools-call-error",  # any error
        "resources-list",
        "prompts-list",
        "dns-rebinding-protection",
    }


@pytest.mark.extended
async def test_the_server_of_the_suite_passes_it_through_the_gateway(url: str, tmp_path: Path) -> None:
    with relay_names(url) as renamed:
        passed = await run_suite(renamed, tmp_path, BEHIND_A_RELAY)
    its_own = {name for name, reason in WITHOUT_ITS_SERVER.items() if reason == ITS_NAMES}
    assert passed > its_own
    assert len(passed) == 20
