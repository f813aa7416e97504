"""Claude Code, Codex and opencode offer Toolscript's tools to the model in their first turn, and call tools through it.

TOOLSCRIPT_TEST_CLIENT_ROUNDS repeats every test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.clients.real_clients import CLIENTS, MODULES, RealClient, run_setup
from tests.fixtures.serving import ALWAYS_LISTED
from tests.servers import make_scripted_spec
from tests.servers.processes import end_gateway
from tests.servers.scripted_model import FINAL_TEXT, ModelCall, ScriptedModel

ROUNDS = int(os.environ.get("TOOLSCRIPT_TEST_CLIENT_ROUNDS", "1"))
TOOL, TEXT = "scripted__echo", "seven swans"
SCRIPT = [
    ModelCall("search_tools", {"query": "return the arguments of a call"}),
    ModelCall("call_tool", {"tool_id": TOOL, "arguments": {"text": TEXT}}),
]

pytestmark = [
    pytest.mark.req("A-06"),
    pytest.mark.extended,
    pytest.mark.skipif(not MODULES.exists(), reason="no MCP clients of other makers: `make test-all` installs them"),
]


@dataclass(frozen=True, slots=True)
class Home:
    """A home folder after `toolscript setup`, in which nothing has run yet."""

    folder: Path
    server: list[str]
    """The command that starts Toolscript's MCP server."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    server = run_setup(tmp_path, {"scripted": make_scripted_spec(tools=["echo"])})
    try:
        yield Home(tmp_path, server)
    finally:
        end_gateway(tmp_path)


@contextmanager
def keep_processors_busy(count: int) -> Iterator[None]:
    """Runs loops beside the block."""
    with ExitStack() as stack:
        for _ in range(count):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]))
            stack.callback(loop.kill)
        yield


@pytest.mark.parametrize("_round", range(ROUNDS))
@pytest.mark.parametrize("loops", [0, 2], ids=["quiet", "busy"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_offers_the_tools_in_its_first_turn_and_calls_them(
    home: Home, client: RealClient, loops: int, _round: int
) -> None:
    if client.find_program() is None:
        pytest.skip(f"the lock file of tests/toolchain/clients has no {client.name} for this system and processor")
    with keep_processors_busy(loops):
        for situation in ("first start ever", "second start"):
            with ScriptedModel(SCRIPT) as model:
                run = client.run(home.folder, model.root, home.server)
            report = f"{situation}\n{run.transcript}\n{run.errors}"
            assert run.status == 0, report
            assert model.turns, report
            assert model.turns[0].offers(*(tool.name for tool in ALWAYS_LISTED)), (
                f"{situation}: the first turn offers {model.turns[0].tools}"
            )
            found, called = model.turns[-1].results
            assert (TOOL in found, TEXT in called) == (True, True), report
            assert [part in run.transcript for part in (TOOL, TEXT, FINAL_TEXT)] == [True, True, True], report
