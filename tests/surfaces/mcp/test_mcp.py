"""The MCP server, called by the official client over both transports."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import httpx2
import jwt
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, TextContent
from tokenizers import Tokenizer

from tests.fixtures.examples import choose
from tests.fixtures.serving import ALWAYS_LISTED, serve
from tests.fixtures.waiting import until
from tests.servers import make_scripted_spec
from tests.servers.preloaded import toolscript_command
from toolscript.adapters.mcp.lenient_reader import read_items
from toolscript.app.app import App, open_app
from toolscript.configuration.files import load_configuration
from toolscript.domain.access import Principal
from toolscript.domain.catalog import Item
from toolscript.domain.documents import Document
from toolscript.evaluation.datasets import demo_folder
from toolscript.services.catalogue import item_points
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.skill_points import SKILLS
from toolscript.settings import DEFAULT_MODEL, load_settings
from toolscript.surfaces.mcp.definitions import TOOLS
from toolscript.surfaces.mcp.native import answer_request
from toolscript.surfaces.mcp.server import answer_call, build_server

TIMEOUT_SECONDS = 40.0
ALWAYS = [tool.name for tool in ALWAYS_LISTED]
LISTED = [tool.name for tool in TOOLS if tool.name in {*ALWAYS, "search_skills"}]
MODEL = "all-MiniLM-L6-v2"
MAX_TOKENS = 600
NAMES = [
    "search_tools",
    "search_skills",
    "describe_tool",
    "call_tool",
    "read_result",
    "search_documents",
    "search_knowledge",
]

# A server with results of every block type, with an unknown block type, and with NaN.
BLOCKS = """
import json, sys
SHOWN = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png", "annotations": {"audience": ["user"]}}
SOUND = {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "memo://welcome", "name": "welcome"}
RESOURCE = {"type": "resource", "resource": {"uri": "memo://welcome", "text": "Welcome."}}
ANSWERS = {
    "draw": {"content": [{"type": "text", "text": "Here it is:"}, SHOWN, SOUND, LINK, RESOURCE]},
    "hologram": {"content": [{"type": "text", "text": "Look:"}, {"type": "hologram", "light": 7}]},
    "silent": {"content": []},
    "only_structured": {"structuredContent": {"answer": 42}},
    "not_a_number": {"content": [{"type": "text", "text": "n"}], "structuredContent": {"n": float("nan")}},
}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, params = request["method"], request.get("params") or {}
    if method == "initialize":
        about = {"name": "blocks", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    elif method == "tools/list":
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}, "description": n} for n in ANSWERS]}
    elif method == "tools/call":
        result = ANSWERS[params["name"]]
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Agent:
    """A client of the official SDK."""

    client: Client

    async def call(self, tool: str, /, **arguments: Any) -> CallToolResult:
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return result

    async def text(self, tool: str, **arguments: Any) -> str:
        """The text of a result that must not be an error."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, text_of(result)
        return text_of(result)

    async def refusal(self, tool: str, /, **arguments: Any) -> str:
        result = await self.call(tool, **arguments)
        assert result.is_error, text_of(result)
        return text_of(result)

    async def find(self, query: str, **more: Any) -> list[str]:
        """Returns the ids that a search finds, in order."""
        text = await self.text("search_tools", query=query, **more)
        return re.findall(r"^(\S.*?)  [01]\.\d\d  ", text, re.MULTILINE)


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def write_configuration(folder: Path) -> Path:
    """Writes a configuration: the demo catalogue as one server, failing tools, prompts, resources and images."""
    tools = Path(str(resources.files("toolscript").joinpath("data/demo/tools.jsonl")))
    good = make_scripted_spec(prompts=True, resources=True) | {"excludeTools": ["die", "e?v"]}
    blocks = {"command": sys.executable, "args": ["-I", "-S", "-c", BLOCKS]}
    file = folder / "servers.json"
    file.write_text(
        json.dumps({"mcpServers": {"good": good, "all": make_scripted_spec(catalog=str(tools)), "blocks": blocks}})
    )
    return file


def stdio(configuration: Path, data: Path, **variables: str) -> StdioServerParameters:
    """The command with which an agent starts the server."""
    command, *arguments = toolscript_command()
    arguments += ["mcp", "--linger", "0", "--config", str(configuration), "--data-dir", str(data)]
    environment = {"TOOLSCRIPT_SEARCH_MODEL": MODEL, "HOME": str(data.parent)} | variables
    return StdioServerParameters(command=command, args=arguments, env=environment)


@asynccontextmanager
async def over_http(folder: Path) -> AsyncIterator[Agent]:
    settings = load_settings(variables={}, data_dir=folder / "data", search_model=MODEL, index="memory:", port=0)
    configuration = load_configuration(write_configuration(folder), home=folder, folder=folder, environment={})
    async with open_app(settings) as app:
        await app.servers.gateway.apply(configuration.servers)
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        async with serve(app) as url, Client(f"{url}/mcp") as client:
            agent = Agent(client)
            await until(lambda: has_everything(agent))  # on a busy machine a server may need a second attempt
            yield agent


@asynccontextmanager
async def over_stdio(folder: Path) -> AsyncIterator[Agent]:
    async with Client(stdio(write_configuration(folder), folder / "data")) as client:
        agent = Agent(client)
        await until(lambda: has_everything(agent))
        yield agent


async def has_everything(agent: Agent) -> bool:
    names = ("good__echo", "all__git_commit", "blocks__draw")
    answers = {name: await agent.text("search_tools", query=name) for name in names}
    return all(text.startswith(name) and "Still starting" not in text for name, text in answers.items())


@pytest.fixture(scope="module", params=[over_http, over_stdio], ids=["http", "stdio"])
async def agent(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Agent]:
    async with request.param(tmp_path_factory.mktemp("agent")) as opened:
        yield opened


# --- tools and instructions ---


@pytest.mark.req("G-08")
async def test_an_agent_sees_described_tools(agent: Agent) -> None:
    listed = (await agent.client.list_tools()).tools
    assert [tool.name for tool in listed] == LISTED
    tools = {tool.name: tool for tool in [*TOOLS, *listed]}
    assert list(tools) == NAMES
    for tool in tools.values():
        assert len(tool.description or "") > 100
        assert tool.input_schema["type"] == "object"
        assert all(each["description"] for each in tool.input_schema["properties"].values())
        assert set(tool.input_schema["required"]) <= tool.input_schema["properties"].keys()
        assert not re.search(r'"(title|\$defs|\$ref|anyOf)":|null', json.dumps(tool.input_schema))
    searching = tools["search_tools"].input_schema
    assert list(searching["properties"]) == ["query", "limit", "type", "skill_ids", "strategy"]
    assert searching["required"] == ["query"]
    assert searching["properties"]["strategy"]["enum"] == ["standard", "hierarchical", "direct", "hybrid"]
    assert searching["properties"]["type"]["enum"] == ["tool", "prompt", "resource", "agent_skill"]
    assert tools["search_skills"].input_schema["properties"].keys() == {"query", "limit"}
    assert tools["describe_tool"].input_schema["required"] == ["tool_id"]
    assert tools["call_tool"].input_schema["properties"].keys() == {"tool_id", "arguments", "query"}
    fields = ["query", "limit", "search_type", "filters", "min_relevance"]
    assert list(tools["search_documents"].input_schema["properties"]) == fields
    fields = ["query", "limit", "type", "topics", "answer", "context", "filters", "min_relevance"]
    assert list(tools["search_knowledge"].input_schema["properties"]) == fields
    loaded = [name for name, tool in tools.items() if (tool.meta or {}).get("anthropic/alwaysLoad") is True]
    assert loaded == ["search_tools", "call_tool"]
    hints = {n: t.annotations.read_only_hint for n, t in tools.items() if t.annotations}
    assert hints == {name: None if name == "call_tool" else True for name in NAMES}


@pytest.mark.req("G-08")
async def test_the_list_of_tools_costs_few_tokens(agent: Agent) -> None:
    tools = {tool.name: tool for tool in [*TOOLS, *(await agent.client.list_tools()).tools]}.values()
    assert tokens(json.dumps([t.model_dump(by_alias=True, exclude_none=True) for t in tools])) < 2200
    assert agent.client.server_info is not None
    assert agent.client.server_info.name == "toolscript"


@pytest.mark.req("G-08")
@pytest.mark.parametrize(
    ("wish", "tool_id", "arguments"),
    [
        ("put my changes into version control", "all__git_commit", {"repo_path": "/r", "message": "m"}),
        ("run a program in a terminal", "all__run_command", {"command": "ls"}),
        ("returns its arguments, structured", "good__echo", {"text": "hello"}),
        ("good__pid", "good__pid", {}),
        ("drraw", "blocks__draw", {}),
    ],
)
async def test_any_tool_is_found_described_and_called(
    agent: Agent, wish: str, tool_id: str, arguments: dict[str, Any]
) -> None:
    assert tool_id in (await agent.find(wish))[:3]
    described = json.loads(await agent.text("describe_tool", tool_id=tool_id))
    assert described["toolId"] == tool_id
    assert set(described["inputSchema"].get("required", ())) <= arguments.keys()
    answered = await agent.call("call_tool", tool_id=tool_id, arguments=arguments)
    assert not answered.is_error, text_of(answered)
    assert answered.content


@pytest.mark.req("G-08")
async def test_a_result_has_id_confidence_reason_signature_and_description(
    agent: Agent,
) -> None:
    lines = (await agent.text("search_tools", query="good__echo", limit=1)).splitlines()
    assert lines == [
        "good__echo  1.00  Exact name",
        "  echo(text: string, times?: number) -> object",
        "  Returns its arguments, as text and structured.",
    ]


@pytest.mark.req("G-08")
async def test_a_call_returns_content_and_structured_content_unchanged(agent: Agent) -> None:
    result = await agent.call("call_tool", tool_id="good__echo", arguments={"text": "Grüße 🦄", "times": 2})
    assert result.structured_content == {"text": "Grüße 🦄", "times": 2}
    assert json.loads(text_of(result)) == {"text": "Grüße 🦄", "times": 2}
    without = await agent.call("call_tool", tool_id="good__pid")
    assert without.structured_content is not None
    assert without.structured_content["pid"] > 0


# --- skills ---


@pytest.mark.req("G-08", "H-08")
async def test_a_skill_is_two_short_lines_and_the_next_call_is_suggested(agent: Agent) -> None:
    *lines, last = (await agent.text("search_skills", query="version control", limit=2)).splitlines()
    assert re.fullmatch(r"source_control  [01]\.\d\d  \d+ tools  Source Control & Code Hosting", lines[0])
    assert lines[1].startswith("  Version control with Git, and code hosting: repositories")
    assert all(len(line) < 200 for line in lines)
    assert len(lines) <= 4
    assert last == 'Next: search_tools with the ids that fit, as in skill_ids=["source_control"].'


@pytest.mark.req("G-08", "H-08")
async def test_search_tools_searches_inside_the_skills_of_search_skills(agent: Agent) -> None:
    text = await agent.text("search_skills", query="put my changes into version control", limit=1)
    skill_id = text.partition("  ")[0]
    inside = await agent.text("search_tools", query="show me the differences", skill_ids=[skill_id], limit=20)
    assert "all__git_diff" in inside
    hits = [line for line in inside.splitlines() if not line.startswith(" ")]
    assert all(skill_id in line for line in hits)
    assert any(skill_id not in line for line in await _hit_lines(agent, "show me the differences"))


async def _hit_lines(agent: Agent, query: str) -> list[str]:
    text = await agent.text("search_tools", query=query, strategy="direct", limit=20)
    return [line for line in text.splitlines() if not line.startswith(" ")]


@pytest.mark.req("G-08", "H-08")
async def test_a_search_of_skills_without_results_says_so(agent: Agent) -> None:
    text = await agent.text("search_skills", query="zzyzx qwrtp")
    assert text == "No skill fits 'zzyzx qwrtp'. search_tools without skill_ids searches everywhere."
    text = await agent.text("search_tools", query="zzyzx qwrtp", skill_ids=["source_control", "databases"])
    assert text.startswith("Nothing in source_control, databases fits 'zzyzx qwrtp'.")


@pytest.mark.req("G-08", "H-01")
@pytest.mark.parametrize("strategy", ["hierarchical", "direct", "hybrid"])
async def test_every_strategy_reports_where_it_searched(agent: Agent, strategy: str) -> None:
    text = await agent.text("search_tools", query="put my changes into version control", strategy=strategy, limit=2)
    first, *lines = text.splitlines()
    if strategy == "direct":
        lines = [first, *lines]
    else:
        assert re.match(r"Searched in skills: source_control [01]\.\d\d", first)
        assert first.endswith("and everywhere.") == (strategy == "hybrid")
    assert re.fullmatch(r"all__git_commit  [01]\.\d\d  source_control", lines[0])
    assert lines[1].startswith("  git_commit(repo_path: string, message: string")
    assert lines[2].startswith("  Record the staged changes")
    assert len(lines) == 6


@pytest.mark.req("G-08", "H-01", "H-04")
async def test_without_a_fitting_skill_everything_is_searched_and_a_note_says_so(agent: Agent) -> None:
    text = await agent.text("search_tools", query="zzyzx qwrtp", strategy="hierarchical")
    assert text.splitlines()[0] == "No skill fits: searched everywhere."
    assert text.splitlines()[1].startswith("No tools found for 'zzyzx qwrtp'")


@pytest.mark.req("G-08", "H-01")
@pytest.mark.parametrize("strategy", ["standard", "hierarchical", "direct", "hybrid"])
async def test_every_strategy_can_be_limited_to_one_type(agent: Agent, strategy: str) -> None:
    found = await agent.find("summarise a text", type="prompt", strategy=strategy, limit=20)
    assert found[:1] == ["good__prompt:summarise"]
    assert all("__prompt:" in each for each in found)
    found = await agent.find("read a file", type="resource", strategy=strategy, limit=20)
    assert all("__resource:" in each for each in found)
    found = await agent.find("read a file", type="tool", strategy=strategy)
    assert "all__read_file" in found
    assert not any("__prompt:" in each or "__resource:" in each for each in found)


@pytest.mark.req("G-08", "H-02", "X-03")
@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("search_tools", {"strategy": "best"}, "strategy: must be one of standard, hierarchical, direct"),
        ("search_tools", {"type": "tools"}, "type: must be one of tool, prompt, resource, agent_skill, or left out"),
        ("search_tools", {"skill_ids": "databases"}, "skill_ids: must be a list of at most"),
        ("search_tools", {"skill_ids": [" "]}, "skill_ids: must not be blank"),
        ("search_tools", {"skill_ids": [f"s{n}" for n in range(11)]}, "a list of at most 10 strings, or left out"),
        (
            "search_tools",
            {"skill_ids": ["databases"], "strategy": "direct"},
            "strategy: direct searches outside skills",
        ),
        (
            "search_tools",
            {"skill_ids": ["databases", "databses"]},
            "no such skill: 'databses': did you mean databases?",
        ),
        ("search_tools", {"skill_ids": ["q"]}, "no such skill: 'q': search_skills finds the ids"),
        ("search_tools", {"query": "x" * 2000, "strategy": "direct"}, "at most 1000"),
        ("search_skills", {"query": " "}, "query: must not be blank"),
        ("search_skills", {"limit": 0}, "limit: must be a whole number from 1 to 20"),
    ],
)
async def test_wrong_arguments_of_a_search_are_named(
    agent: Agent, tool: str, arguments: dict[str, Any], message: str
) -> None:
    assert message in await agent.refusal(tool, **({"query": "a query"} | arguments))


@pytest.mark.req("G-08")
async def test_null_and_empty_arguments_are_ignored(agent: Agent) -> None:
    plain = await agent.text("search_tools", query="read a file")
    assert await agent.text("search_tools", query="read a file", skill_ids=[], type=None, strategy=None) == plain


@pytest.mark.req("G-08", "H-04")
async def test_a_degraded_search_says_so_in_one_line(tmp_path: Path) -> None:
    async with app_among(load_demo_items(), tmp_path) as app, Client(server_of(app)) as client:
        agent = Agent(client)
        await app.index.drop(SKILLS)
        text = await agent.text("search_tools", query="commit my changes to git", strategy="hybrid")
        assert text.splitlines()[0] == "Skills cannot be searched right now: searched everywhere."
        assert len(text.splitlines()) == 16  # and five hits, three lines each
        await app.index.drop(item_points.TOOLS)
        text = await agent.text("search_tools", query="commit my changes to git", strategy="direct")
        assert text == "Tools cannot be searched right now: try again in a moment."
        assert "skills cannot be searched right now" in await agent.refusal("search_skills", query="git")


@pytest.mark.req("G-08", "H-04", "S-08")
async def test_without_a_model_tools_are_found_by_words_and_skills_are_not_searched(tmp_path: Path) -> None:
    invalid = tmp_path / "models" / DEFAULT_MODEL  # replaces the packaged model
    invalid.mkdir(parents=True)
    (invalid / "config.json").write_text("{}")
    default = {"search_model": DEFAULT_MODEL}
    async with app_among(load_demo_items(), tmp_path, **default) as app, Client(server_of(app)) as client:
        assert app.model.embedder is None
        agent = Agent(client)
        text = await agent.text("search_tools", query="commit changes")
        assert text.splitlines()[0] == "The query could not be embedded: found by words and names alone."
        assert "git__git_commit" in text
        none = "There is no embedding model, so skills cannot be searched: use search_tools without skill_ids."
        assert await agent.text("search_skills", query="git") == none
        assert await agent.text("search_tools", query="git", skill_ids=["databases"]) == none
        text = await agent.text("search_tools", query="git", strategy="hierarchical")
        assert text == "The query could not be embedded, so nothing was searched: use strategy standard."


# --- errors ---


@pytest.mark.req("G-08", "X-03")
@pytest.mark.parametrize(
    ("arguments", "field"), [({}, "text"), ({"text": 7}, "text"), ({"text": "x", "times": "two"}, "times")]
)
async def test_wrong_arguments_of_a_tool_are_refused_with_field_and_signature(
    agent: Agent, arguments: dict[str, Any], field: str
) -> None:
    text = await agent.refusal("call_tool", tool_id="good__echo", arguments=arguments)
    assert text.startswith(f"{field}: ")
    assert "echo(text: string, times?: number)" in text


@pytest.mark.req("G-08", "X-03")
@pytest.mark.parametrize("arguments", ["text", 7, ["x"], True])
async def test_arguments_that_are_not_an_object_are_refused_with_the_signature(agent: Agent, arguments: Any) -> None:
    text = await agent.refusal("call_tool", tool_id="good__echo", arguments=arguments)
    assert "must be a JSON object" in text
    assert "echo(text: string, times?: number)" in text


@pytest.mark.req("G-08", "X-03")
@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("search_tools", {}, "query is missing: it must be a string"),
        ("search_tools", {"query": " "}, "query: must not be blank"),
        ("search_tools", {"query": 7}, "query: must be a string"),
        ("search_tools", {"query": "?!"}, "blank"),
        ("search_tools", {"query": "x" * 9000}, "at most 8000"),
        ("search_tools", {"query": "x", "limit": 21}, "limit: must be a whole number from 1 to 20"),
        ("search_tools", {"query": "x", "limit": "3"}, "limit: must be a whole number from 1 to 20"),
        ("call_tool", {"tool_id": 7}, "tool_id: must be a string"),
        (
            "call_tool",
            {"tool": "good__echo", "arguments": {}},
            "tool_id is missing: it must be a string; unknown: 'tool'; did you mean tool_id?",
        ),
        ("good__echo", {"text": "x"}, "call_tool"),
        ("no_such_tool", {}, "search_tools, search_skills, describe_tool, call_tool"),
    ],
)
async def test_a_wrong_call_is_refused_with_the_reason(
    agent: Agent, tool: str, arguments: dict[str, Any], message: str
) -> None:
    assert message in await agent.refusal(tool, **arguments)


@pytest.mark.req("G-08")
@pytest.mark.parametrize("tool", ["describe_tool", "call_tool"])
async def test_an_unknown_tool_is_refused_with_the_nearest_names(agent: Agent, tool: str) -> None:
    text = await agent.refusal(tool, tool_id="good__ecoh")
    assert "no such tool: 'good__ecoh': did you mean good__echo" in text


@pytest.mark.req("Q-06")
@pytest.mark.parametrize("strategy", ["standard", "direct"])
async def test_without_a_confident_match_the_closest_tools_are_shown_with_what_to_do(
    tmp_path: Path, strategy: str
) -> None:
    items = [
        Item("files", "delete_folder", "Delete a whole folder of photos."),
        Item("files", "list_photos", "List photos."),
        Item("pages", "fetch", "Download a page."),
    ]
    query = "make the photos of our last summer holiday brighter"
    async with app_among(items, tmp_path) as app, Client(server_of(app)) as client:
        first, *closest, last = (await Agent(client).text("search_tools", query=query, strategy=strategy)).splitlines()
    assert first == f"No tool is a confident match for {query!r}. Closest:"
    assert closest[0].endswith("  Delete a whole folder of photos.")
    scores = [float(line.split()[1]) for line in closest]
    assert 0.3 > scores[0] == max(scores)
    assert last == ("If one of them serves the request, call it; otherwise tell the user that no connected tool does.")


@pytest.mark.req("G-08", "S-01")
async def test_each_result_of_a_task_says_which_part_it_is_for(agent: Agent) -> None:
    task = (
        "Echo the text that I have sent to you at the beginning of this long conversation about nothing special. "
        "Afterwards fail with a message of your own choice, so that we see whether the people who built all of this "
        "have thought of errors and of other surprises as well."
    )
    text = await agent.text("search_tools", query=task)
    needs = re.findall("^  for: (.*)$", text, re.MULTILINE)
    assert needs
    assert all(need.rstrip("…") in task for need in needs)


@pytest.mark.req("G-08", "G-05")
async def test_errors_of_a_tool_are_returned_unchanged(agent: Agent) -> None:
    assert "out of ink" in await agent.refusal("call_tool", tool_id="good__fail", arguments={"message": "out of ink"})
    assert "no paper" in await agent.refusal("call_tool", tool_id="good__error", arguments={"message": "no paper"})


@pytest.mark.req("G-08", "G-01")
@pytest.mark.parametrize("name", ["die", "env"])
async def test_an_excluded_tool_can_be_neither_found_nor_called(agent: Agent, name: str) -> None:
    hidden = f"good__{name}"
    for query in (hidden, name, "Ends the process", "environment variable"):
        for strategy in ("standard", "hierarchical", "direct", "hybrid"):
            assert hidden not in await agent.find(query, limit=20, strategy=strategy)
    for tool in ("describe_tool", "call_tool"):
        text = await agent.refusal(tool, tool_id=hidden)
        assert "no such tool" in text
        assert hidden not in text.partition("did you mean")[2]


# --- prompts, resources and other results ---


@pytest.mark.req("G-08", "G-03")
async def test_a_prompt_is_found_and_returns_its_messages(agent: Agent) -> None:
    assert "good__prompt:summarise" in await agent.find("summarise a text")
    result = await agent.call("call_tool", tool_id="good__prompt:summarise", arguments={"text": "long"})
    assert result.structured_content is not None
    assert result.structured_content["messages"][0]["role"] == "user"
    assert "long" in text_of(result)
    assert "text: " in await agent.refusal("call_tool", tool_id="good__prompt:summarise", arguments={})


@pytest.mark.req("G-08", "G-03")
async def test_resources_and_their_templates_are_found_and_read(agent: Agent) -> None:
    assert "good__resource:rules" in await agent.find("rules of the house")
    read = await agent.text("call_tool", tool_id="good__resource:welcome")
    assert "What memo://welcome holds" in read
    filled = await agent.text("call_tool", tool_id="good__resource:memos", arguments={"year": "2026", "month": "5"})
    assert "memo://2026/5" in filled


@pytest.mark.req("G-08", "G-05")
async def test_nan_in_a_result_does_not_break_the_connection(agent: Agent) -> None:
    answered = await agent.call("call_tool", tool_id="blocks__not_a_number")
    assert text_of(answered)
    assert not (await agent.call("call_tool", tool_id="blocks__draw")).is_error


@pytest.mark.req("G-08")
async def test_concurrent_calls_get_their_own_results(agent: Agent) -> None:
    texts = [f"text {n}" for n in range(20)]
    calls = (agent.call("call_tool", tool_id="good__echo", arguments={"text": t}) for t in texts)
    assert [(r.structured_content or {})["text"] for r in await asyncio.gather(*calls)] == texts


# --- only HTTP ---


@pytest.fixture(scope="module")
async def url(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The URL of a gateway with a hashing embedder."""
    folder = tmp_path_factory.mktemp("url")
    settings = load_settings(variables={}, data_dir=folder, search_model="hashed-64", index="memory:", port=0)
    configuration = load_configuration(write_configuration(folder), home=folder, folder=folder, environment={})
    async with open_app(settings) as app:
        await app.servers.gateway.apply(configuration.servers)
        await app.servers.gateway.settle(TIMEOUT_SECONDS)
        async with serve(app) as address:
            yield address


@pytest.mark.req("X-03", "G-08")
@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("search_tools", {"query": "echo", "limt": 1}, "limt: unknown argument, did you mean limit?"),
        ("search_tools", {"query": "echo", "skillIds": ["x"]}, "skillIds: unknown argument, did you mean skill_ids?"),
        ("call_tool", {"tool_id": "good__echo", "args": {}}, "args: unknown argument, did you mean arguments?"),
        ("search_knowledge", {"query": "echo", "topic": "a"}, "topic: unknown argument, did you mean topics?"),
    ],
)
async def test_an_argument_that_was_meant_to_be_another_is_not_ignored(
    url: str, tool: str, arguments: dict[str, Any], message: str
) -> None:
    async with Client(f"{url}/mcp") as client:
        assert await Agent(client).refusal(tool, **arguments) == message


@pytest.mark.req("G-08")
async def test_arguments_that_resemble_none_are_ignored(url: str) -> None:
    async with Client(f"{url}/mcp") as client:
        text = await Agent(client).text("search_tools", query="good__echo", explanation="to see it", limit=1)
    assert text.startswith("good__echo")


@pytest.mark.req("G-08")
async def test_an_unknown_session_id_is_accepted(url: str) -> None:
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Session-Id": "of-a-gateway-that-was-restarted"}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx.AsyncClient(headers=headers) as http:
        answer = await http.post(f"{url}/mcp", json=request)
    assert [tool["name"] for tool in answer.json()["result"]["tools"]] == LISTED


@pytest.mark.req("G-08", "X-03")
@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "PUT"])
async def test_only_post_is_allowed_because_there_are_no_sessions_and_no_streams(
    url: str, method: str, version: str
) -> None:
    headers = {"Accept": "text/event-stream", "Mcp-Protocol-Version": version}
    async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS) as http:
        answer = await http.request(method, f"{url}/mcp")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.req("G-08", "X-03")
@pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"{}", b'{"jsonrpc": "2.0", "id": 1, "method": "nonsense"}'])
async def test_invalid_messages_are_refused(url: str, body: bytes) -> None:
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    async with httpx.AsyncClient(headers=headers) as http:
        answer = await http.post(f"{url}/mcp", content=body)
    assert answer.status_code < 500
    assert answer.json()["error"]["message"]


@pytest.mark.req("G-05")
async def test_nan_in_a_result_is_not_an_internal_error(url: str) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{url}/tools/blocks__not_a_number")
        assert answer.status_code in {200, 502}, answer.text
        json.loads(answer.content, parse_constant=lambda constant: pytest.fail(f"{constant} is not valid JSON"))


# --- token costs ---


def tokens(text: str) -> int:
    """An upper estimate of the tokens of a text: by a tokenizer or by length, whichever is more."""
    return max(len(_tokenizer().encode(text).ids), -(-len(text) // 3))


@cache
def _tokenizer() -> Tokenizer:
    place = Path(str(resources.files("toolscript").joinpath("data/models"))) / MODEL / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(place))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@asynccontextmanager
async def app_among(items: Sequence[Item], folder: Path, **settings: Any) -> AsyncIterator[App]:
    given = {"data_dir": folder, "search_model": "hashed-64", "index": "memory:"} | settings
    async with open_app(load_settings(variables={}, **given)) as app:
        await app.catalogue.sync.run(items)
        yield app


def server_of(app: App) -> Server[Any]:
    async def caller() -> Principal:
        return Principal(app.settings.tenant)

    return build_server(
        lambda params, _: answer_call(app, params, caller),
        lambda method, params, _: answer_request(app, method, params),
        app.tools.native_changes.open,
    )


@asynccontextmanager
async def agent_among(items: Sequence[Item], folder: Path) -> AsyncIterator[Agent]:
    async with app_among(items, folder) as app, Client(server_of(app)) as client:
        yield Agent(client)


def demo_queries() -> list[str]:
    lines = (demo_folder() / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["query"] for line in lines]


async def find_costliest(agent: Agent, queries: Sequence[str]) -> tuple[int, str, str]:
    answers = [(q, await agent.text("search_tools", query=q)) for q in queries]
    costs = [(tokens(text), query, text) for query, text in answers]
    lines = [[line for line in text.splitlines() if not line.startswith("  for: ")] for _, _, text in costs]
    assert max(map(len, lines)) == 15  # five hits, three lines each, and the need of each where there are several
    return max(costs)


@pytest.mark.req("G-08")
async def test_five_hits_of_the_demo_catalogue_cost_less_than_600_tokens(tmp_path: Path) -> None:
    async with agent_among(load_demo_items(), tmp_path) as agent:
        cost, query, text = await find_costliest(agent, demo_queries())
    assert cost < MAX_TOKENS, f"{cost} tokens for {query!r}:\n{text}"


@pytest.mark.extended
@pytest.mark.req("G-08")
async def test_five_hits_among_the_tools_of_80_real_servers_cost_less_than_600_tokens(
    shared_data: Path, tmp_path: Path
) -> None:
    listings = sorted((shared_data / "mcp_servers").glob("*.json"))
    items = [
        item
        for file in listings
        for item in read_items(file.stem.replace("__", "-"), {"tools/list": [json.loads(file.read_bytes())]}).items
    ]
    assert len(items) > 1000
    async with agent_among(items, tmp_path) as agent:
        cost, query, text = await find_costliest(agent, [*demo_queries(), *(item.name for item in items[::25])])
    assert cost < MAX_TOKENS, f"{cost} tokens for {query!r}:\n{text}"


# --- only stdio ---


def holder(data: Path) -> int:
    """The process id of the gateway of a data folder."""
    pid: int = json.loads((data / "gateway.json").read_text())["pid"]
    return pid


@pytest.fixture
def two(tmp_path: Path) -> StdioServerParameters:
    """The same configuration for several agents."""
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"good": make_scripted_spec()}}))
    return stdio(file, tmp_path / "data", TOOLSCRIPT_SEARCH_MODEL="hashed-64")


@pytest.mark.req("G-08", "G-02", "G-05")
async def test_the_first_search_and_the_first_call_of_a_new_agent_work(two: StdioServerParameters) -> None:
    async with Client(two) as client:
        assert (await Agent(client).find("good__echo"))[:1] == ["good__echo"]
        assert await pid_behind(Agent(client)) > 0
    async with Client(two) as client:
        assert await pid_behind(Agent(client)) > 0


@pytest.mark.extended
@pytest.mark.req("G-08", "X-05", "A-06")
@pytest.mark.parametrize("sent", choose([signal.SIGTERM, signal.SIGKILL], signal.SIGKILL))
async def test_when_the_gateway_ends_all_agents_go_on_with_the_next_one(
    two: StdioServerParameters, tmp_path: Path, sent: signal.Signals
) -> None:
    async with Client(two) as one, Client(two) as other:
        agents = [Agent(one), Agent(other)]
        upstream = {await pid_behind(agent) for agent in agents}
        before = holder(tmp_path / "data")
        os.kill(before, sent)
        await until(lambda: _are_gone([before]))
        assert len(upstream) == 1
        after = {await pid_behind(agent) for agent in agents}
        assert len(after) == 1
        assert after != upstream
        assert holder(tmp_path / "data") != before
        await until(lambda: _are_gone([*upstream]))


async def pid_behind(agent: Agent) -> int:
    """The process id of the server behind the gateway."""
    pid: int = json.loads(await agent.text("call_tool", tool_id="good__pid"))["pid"]
    return pid


@pytest.mark.extended
@pytest.mark.req("G-08")
async def test_no_process_is_left_when_the_agent_ends(two: StdioServerParameters, tmp_path: Path) -> None:
    async with Client(two) as client:
        upstream = await pid_behind(Agent(client))
        processes = [holder(tmp_path / "data"), upstream]
    await until(lambda: _are_gone(processes))
    assert not (tmp_path / "data" / "gateway.json").exists()


async def _are_gone(processes: Sequence[int]) -> bool:
    """Zombie processes count as gone when their last thread has ended: until then their sockets are open."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(process).status() != psutil.STATUS_ZOMBIE or psutil.Process(process).num_threads() > 1:
                return False
    return True


@pytest.mark.req("G-08", "G-01")
async def test_the_agent_gets_configuration_errors_with_file_key_and_line(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {\n  "good": {"comand": "x"}\n}}')
    async with Client(stdio(file, tmp_path / "data")) as client:
        text = await Agent(client).refusal("search_tools", query="anything")
    assert 'servers.json: mcpServers.good.comand: unknown key, did you mean "command"? (line 2)' in text


# --- documents ---

SECRET = "a secret that is long enough for anybody"
KEYS = Document(
    "keys.md", "Keys are rotated every ninety days.\n\nBy hand.", "Rotating keys", {"year": 2024, "tags": ["a"]}
)
LEASE = Document("lease", "The notice period is three months.", "Lease", {"year": 2019, "team": "legal"})


def bearer(tenant: str, **claims: Any) -> dict[str, str]:
    claims_of_token = {"tenant_id": tenant, "exp": time.time() + 600} | claims
    return {"Authorization": f"Bearer {jwt.encode(claims_of_token, SECRET, algorithm='HS256')}"}


@asynccontextmanager
async def reader(app: App) -> AsyncIterator[Agent]:
    """An agent in the same process, for the tenant of the settings."""
    async with Client(server_of(app)) as client:
        yield Agent(client)


@pytest.fixture
async def documents(tmp_path: Path) -> AsyncIterator[App]:
    """An application in which two tenants have documents."""
    async with app_among([], tmp_path, jwt_secret=SECRET, port=0) as app:
        await app.texts.ingest_documents.put("default", [KEYS, LEASE])
        await app.texts.ingest_documents.put("acme", [Document("plans", "Rotated keys of acme.")])
        yield app


@pytest.mark.req("D-01", "G-08")
async def test_a_document_is_two_short_lines(documents: App) -> None:
    async with reader(documents) as agent:
        text = await agent.text("search_documents", query="rotated keys", search_type="keyword")
    first, second = text.splitlines()
    assert re.fullmatch(r"keys\.md  \d+\.\d\d  Rotating keys", first)
    assert second == "  Keys are rotated every ninety days. By hand."


@pytest.mark.req("F-03")
async def test_an_agent_reads_that_nothing_relevant_was_found(documents: App) -> None:
    async with reader(documents) as agent:
        near, empty, one = [
            await agent.text("search_documents", query=query, **arguments)
            for query, arguments in (
                ("asdf qwer zxcv", {}),
                ("asdf qwer zxcv", {"min_relevance": 0.3}),
                ("rotated keys", {"min_relevance": 0.01, "search_type": "keyword"}),
            )
        ]
        assert "min_relevance" in await agent.refusal("search_documents", query="keys", min_relevance=7)
    assert near.splitlines()[0].startswith("Nothing relevant found for 'asdf qwer zxcv'.")
    assert len(near.splitlines()) > 1
    assert empty.startswith("No documents of relevance 0.3 found for 'asdf qwer zxcv'.")
    assert one.startswith("keys.md  ")


@pytest.mark.req("D-01")
async def test_every_search_type_finds_documents(documents: App) -> None:
    async with reader(documents) as agent:
        for search_type in ("semantic", "keyword", "hybrid", None):
            text = await agent.text("search_documents", query="notice period", search_type=search_type, limit=1)
            assert text.splitlines()[-2].startswith("lease  ")
        text = await agent.text("search_documents", query="zzyzx", search_type="keyword")
    assert text.startswith("No documents found for 'zzyzx'.")


@pytest.mark.req("D-03")
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (None, ["keys.md", "lease"]),
        ({"team": "legal"}, ["lease"]),
        ({"tags": ["a", "b"]}, ["keys.md"]),
        ({"year": {"gt": 2000, "lt": 2020}}, ["lease"]),
        ('{"team": "legal"}', ["lease"]),
        ({"must_not": [{"field": "team", "op": "exists", "value": True}]}, ["keys.md"]),
    ],
    ids=str,
)
async def test_filters_name_fields_with_values_lists_or_operators(
    documents: App, filters: Any, found: list[str]
) -> None:
    async with reader(documents) as agent:
        text = await agent.text("search_documents", query="keys", search_type="semantic", filters=filters)
    assert sorted(re.findall(r"^(\S+)  \d\.\d\d  ", text, re.MULTILINE)) == found


@pytest.mark.req("D-11")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "query is missing: it must be a string"),
        ({"query": "x", "limit": 21}, "limit: must be a whole number from 1 to 20"),
        ({"query": "x", "search_type": "psychic"}, "search_type: must be one of semantic, keyword, hybrid"),
        ({"query": "x", "filters": "team"}, "filters: must be an object like"),
        ({"query": "x", "filters": "[" * 100_000}, "filters: must be an object like"),
        ({"query": "x", "filters": {"a": json.loads("[" * 200 + "]" * 200)}}, "must be a string, a number"),
        ({"query": "x", "filters": {"team": "legal", "must_not": []}}, "without other keys"),
        ({"query": "x", "filters": {"year": {"is": 1}}}, "'is' is not one of eq, ne"),
        ({"query": "x", "filters": {str(n): n for n in range(101)}}, "filters: at most 100 conditions"),
    ],
)
async def test_wrong_arguments_of_a_document_search_are_named(
    documents: App, arguments: dict[str, Any], message: str
) -> None:
    async with reader(documents) as agent:
        assert message in await agent.refusal("search_documents", **arguments)


@pytest.mark.req("D-04", "D-05")
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_over_http_documents_are_those_of_the_token_and_other_tools_need_none(documents: App, mode: str) -> None:
    valid = [bearer("default"), bearer("acme")]

    async def search(url: str, headers: dict[str, str]) -> CallToolResult:
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                offered = [tool.name for tool in (await client.list_tools()).tools]
                assert ("search_documents" in offered) == (headers in valid)
                other = await Agent(client).text("search_tools", query="read a file")
                assert other.startswith("No tools found")
                return await Agent(client).call("search_documents", query="rotated keys", search_type="keyword")

    async with serve(documents) as url:
        mine, theirs = [await search(url, headers) for headers in valid]
        assert text_of(mine).startswith("keys.md  ")
        assert text_of(theirs).startswith("plans  ")
        for headers in ({}, bearer("default", exp=1), {"Authorization": "Bearer nonsense"}):
            refused = await search(url, headers)
            assert refused.is_error
            assert "token" in text_of(refused)
            assert "Traceback" not in text_of(refused)


@pytest.mark.extended
@pytest.mark.req("D-04", "G-08")
async def test_over_stdio_documents_are_those_of_the_settings_also_through_another_gateway(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"mcpServers": {}}')
    settings = load_settings(variables={}, data_dir=tmp_path / "data", search_model="hashed-64")
    async with open_app(settings) as app:
        await app.texts.ingest_documents.put("default", [KEYS])
        await app.texts.ingest_documents.put("acme", [LEASE])
    start = partial(stdio, tmp_path / "servers.json", tmp_path / "data", TOOLSCRIPT_SEARCH_MODEL="hashed-64")
    async with Client(start()) as first, Client(start(TOOLSCRIPT_TENANT="acme")) as second:
        for client, doc_id in ((first, "keys.md"), (second, "lease")):
            text = await Agent(client).text("search_documents", query="the")
            assert re.findall(r"^(\S+)  ", text, re.MULTILINE) == [doc_id]


@pytest.mark.req("G-08", "D-01")
async def test_twenty_documents_cost_less_than_2500_tokens(tmp_path: Path) -> None:
    long = [Document(f"d{n:02}", "keys and locks " * 500, "A title " * 50) for n in range(30)]
    async with app_among([], tmp_path) as app, reader(app) as agent:
        await app.texts.ingest_documents.put("default", long)
        text = await agent.text("search_documents", query="keys and locks", limit=20)
    assert len(text.splitlines()) in {40, 41}
    assert tokens(text) < 2500
