"""What tools cost in an agent's context."""

from __future__ import annotations

import pytest

from tests.servers import make_scripted_server
from toolscript.app.engines import Servers
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.services.tools.token_costs import estimate_tokens
from toolscript.surfaces.cli.setup.measure import ToolCost, add_costs, count_tools, measure_own_tools, measure_servers
from toolscript.surfaces.mcp.definitions import TOOLS, build_instructions

MAX_TOKENS = 1500

pytestmark = pytest.mark.req("G-21")


def test_a_tool_costs_its_name_its_description_and_its_schema() -> None:
    small = count_tools([("read", "Read a file.", {"type": "object"})])
    large = count_tools([("read", "Read a file." * 100, {"type": "object"})])
    assert small == ToolCost(1, 21)
    assert large.tokens - small.tokens == 99 * len("Read a file.") / 4


def test_toolscript_has_seven_tools() -> None:
    own = measure_own_tools()
    assert own.tools == 7
    assert 600 < own.tokens < MAX_TOKENS


@pytest.mark.req("G-08")
def test_the_list_of_tools_and_the_instructions_take_no_more_than_1500_tokens() -> None:
    instructions = build_instructions([tool.name for tool in TOOLS])
    assert measure_own_tools().tokens + estimate_tokens(len(instructions)) <= MAX_TOKENS


@pytest.mark.slow
async def test_servers_are_counted_by_their_tools_and_failures_have_a_reason() -> None:
    specs = [
        make_scripted_server("good", tools=["echo", "pid"], prompts=True, resources=True),
        make_scripted_server("crashing", crash=True),
        ServerSpec("missing", Transport.STDIO, command="no-such-command"),
    ]
    costs = await measure_servers(Servers(2**20), specs, within=30)
    assert costs["good"].tools == 2
    assert costs["good"].tokens > 20
    assert "no-such-command" in str(costs["missing"].problem)
    assert costs["crashing"].problem
    assert add_costs(costs.values()) == costs["good"]


@pytest.mark.slow
async def test_a_server_that_does_not_answer_ends_the_measurement_of_none() -> None:
    costs = await measure_servers(Servers(2**20), [make_scripted_server("hanging", hang=True)], within=0.5)
    assert costs["hanging"].problem == "no answer within 0.5 s"
