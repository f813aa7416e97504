"""Code mode over HTTP and MCP: programs against typed tools, whose calls take the same road as all others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import pytest

from tests.surfaces.code.conftest import TIMEOUT_SECONDS, CodeClient
from toolscript.adapters.monty.sandbox import MontySandbox
from toolscript.codegen.programs import ProgramTools
from toolscript.domain.audit import AuditKind, AuditQuery
from toolscript.domain.catalog import Item
from toolscript.domain.errors import NotFound
from toolscript.domain.programs import Language, Program, ProgramOutcome, ProgramProblem
from toolscript.domain.servers import CallRelay
from toolscript.services.code import toolset
from toolscript.services.code.host import RunCaller
from toolscript.services.code.run import RunRequest
from toolscript.services.tools.call import CallTool
from toolscript.surfaces.callers import OWNER
from toolscript.surfaces.mcp.definitions import MAY_BE_EMPTY

pytestmark = pytest.mark.req("C-01")


async def test_a_program_calls_tools_and_returns_what_it_makes_of_the_results(client: CodeClient) -> None:
    answer = await client.run(
        """
texts = []
for word in ["one", "two"]:
    said = await tools.box.echo({"text": word})
    texts.append(said["text"].upper())
print("called twice")
return {"texts": texts}
"""
    )
    assert (answer["end"], answer["message"], answer["problems"]) == ("done", None, [])
    assert answer["value"] == {"texts": ["ONE", "TWO"]}
    assert answer["printed"] == "called twice\n"
    assert [(call["function"], call["outcome"]) for call in answer["calls"]] == [("box__echo", "ok")] * 2


async def test_an_agent_runs_a_program_with_one_call(client: CodeClient) -> None:
    program = 'said = await tools.box.echo({"text": "hi"})\nprint("seen")\nsaid["text"]'
    assert await client.call("run_code", code=program) == (['"hi"', "Printed:\nseen"], False)


async def test_calls_that_start_together_run_together(client: CodeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = asyncio.Barrier(10)
    call = CallTool.call

    async def meet_and_call(*arguments: Any, **options: Any) -> Any:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await meeting.wait()
        return await call(*arguments, **options)

    monkeypatch.setattr(CallTool, "call", meet_and_call)
    program = """
import asyncio
await asyncio.gather(*[tools.box.echo({"text": str(n)}) for n in range(10)])
"""
    answer = await client.run(program)
    assert answer["end"] == "done", answer
    assert len(answer["calls"]) == 10


@pytest.mark.req("C-02")
async def test_a_wrong_argument_is_found_before_anything_runs(client: CodeClient) -> None:
    before = (await client.app.tools.call.call("box__seen", {})).structured["tools/call"]
    answer = await client.run('first = await tools.box.echo({"text": "a"})\nawait tools.box.echo({"txt": "b"})')
    assert (answer["end"], answer["line"], answer["calls"]) == ("rejected", 2, [])
    (problem,) = answer["problems"]
    assert "text" in problem["message"]
    assert problem["signatures"][0].startswith("await tools.box.echo({text: string, times?: number})")
    assert (await client.app.tools.call.call("box__seen", {})).structured["tools/call"] == before + 1


@pytest.mark.req("C-02")
async def test_an_agent_reads_the_line_and_the_signature_of_a_mistake(client: CodeClient) -> None:
    (text,), is_error = await client.call("run_code", code='x = 1\nawait tools.box.echo({"text": x})')
    assert is_error
    assert text.startswith("The program was not run:\nline 2: ")
    assert "\n  expected: await tools.box.echo({text: string" in text


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("await tools.box.ecko({})", "tools.box.ecko: no such tool: did you mean tools.box.echo?"),
        ("await tools.bax.echo({})", "tools.bax.echo: no such server: did you mean tools.box?"),
        (
            "await tools.box__echo({})",
            "tools.box__echo: an id is not how a program calls a tool: write tools.box.echo",
        ),
    ],
)
async def test_an_unknown_tool_is_named_with_the_nearest(client: CodeClient, program: str, hint: str) -> None:
    answer = await client.run(program)
    assert (answer["end"], answer["message"]) == ("rejected", f"line 1: {hint}")


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ('await call_tool("box__echo", {})', "write `await tools.SERVER.NAME({…})`"),
        ('json.loads("1")', "write `import json` first"),
        ('open("a").read()', "there are no files and no environment here, use a tool"),
        ("import requests", "there is no network here, use a tool"),
        ("import numpy", "there are only asyncio, base64, "),
        ('found = await search_tools("echo")\nfound[0].call', 'it is a dictionary, write ["call"]'),
        ('found = await search_tools("echo")\nfound[0]["name"]', "it has id, call, confidence, is_confident, "),
        ("const a = 1", "the program is read as Python, unless `language` names another"),
    ],
)
async def test_a_typical_mistake_says_what_to_do(client: CodeClient, program: str, hint: str) -> None:
    answer = await client.run(program)
    assert answer["end"] == "rejected", answer
    assert f": {hint}" in answer["problems"][0]["message"]


@pytest.mark.parametrize(
    "value",
    ['tools.box.echo({"text": "a"})', '[tools.box.echo({"text": "a"})]', '{"a": tools.box.echo({"text": "a"})}'],
)
async def test_a_value_that_was_not_awaited_is_a_mistake(client: CodeClient, value: str) -> None:
    answer = await client.run(f"return {value}")
    assert (answer["end"], answer["calls"]) == ("failed", [])
    assert "write `await` before it" in answer["message"]


async def test_a_program_that_names_no_tool_learns_why_it_finds_none(client: CodeClient) -> None:
    assert "write `tools.SERVER.NAME`" in (await client.run("return len(tools)"))["message"]
    assert "write `tools.SERVER.NAME`" in (await client.run('return eval("tools")'))["message"]


async def test_what_this_python_lacks_is_named(client: CodeClient) -> None:
    answer = await client.run("def count():\n    yield 1\nreturn list(count())")
    assert "this sandbox's Python does not yet support yield" in answer["message"]


async def test_a_program_of_markdown_is_refused(client: CodeClient) -> None:
    error = (await client.run("```python\n1\n```"))["error"]
    assert error["message"] == "code: must be the program alone, without the lines ``` of Markdown"


async def test_an_agent_learns_that_its_program_returns_nothing(client: CodeClient) -> None:
    (text,), is_error = await client.call("run_code", code='said = await tools.box.echo({"text": "a"})')
    assert not is_error
    assert text.startswith("null (the program printed nothing; `return VALUE`")


async def test_a_failing_tool_raises_an_error_that_a_program_can_catch(client: CodeClient) -> None:
    program = """
try:
    await tools.box.fail({"message": "out of paper"})
except Exception as error:
    print(error)
await tools.box.fail({"message": "still"})
"""
    answer = await client.run(program)
    assert (answer["end"], answer["line"]) == ("failed", 6)
    assert "out of paper" in answer["printed"]
    assert "still" in answer["message"]
    assert [call["outcome"] for call in answer["calls"]] == ["UPSTREAM_ERROR", "UPSTREAM_ERROR"]


async def test_the_road_checks_arguments_that_types_cannot_express(client: CodeClient) -> None:
    answer = await client.run('await tools.box.echo({"text": "a", "times": 0})')
    assert answer["end"] == "failed"
    assert "VALIDATION_ERROR: times" in answer["message"]


async def test_a_program_searches_and_describes(client: CodeClient) -> None:
    program = """
found = await search_tools("echo", limit=1)
about = await describe_tool(found[0]["id"])
signatures = [found[0]["signature"], about["signature"]]
return [found[0]["id"], found[0]["call"], about["call"], signatures, sorted(about["input_schema"]["properties"])]
"""
    answer = await client.run(program)
    item_id, *calls, signatures, names = answer["value"]
    assert (item_id, calls, names) == ("box__echo", ["tools.box.echo"] * 2, ["text", "times"]), answer
    assert all(each.startswith("tools.box.echo({text: string, times?: number})") for each in signatures)


@pytest.mark.req("Q-06")
async def test_a_program_sees_which_of_the_tools_that_it_finds_are_only_the_closest(client: CodeClient) -> None:
    program = """
found = await search_tools("echo the text slowly")
found += await search_tools("echo a story about whales and their slow songs")
return [[tool["is_confident"], tool["confidence"] >= 0.35] for tool in found]
"""
    marks = (await client.run(program))["value"]
    assert all(is_confident == is_above for is_confident, is_above in marks)
    assert (marks[0], marks[-1]) == ([True, True], [False, False])


@pytest.mark.req("C-02")
@pytest.mark.parametrize(
    ("program", "limits", "end", "sentence"),
    [
        ("while True: pass", {"cpu_seconds": 0.2}, "cpu", "or raise the limit `cpu_seconds`"),
        ('await tools.box.slow({"seconds": 60})', {"seconds": 0.5}, "time", "took more than 0.5 seconds"),
        ('x = []\nwhile True: x.append("a" * 100000)', {"memory_mb": 16}, "memory", "or raise the limit `memory_mb`"),
        ('for i in range(9): await tools.box.echo({"text": "a"})', {"calls": 3}, "calls", "made more than 3 calls"),
        ('while True: print("a" * 100)', {"output_bytes": 1000}, "output", "printed more than 1000 bytes"),
        ('"a" * 2000', {"output_bytes": 1000}, "output", "larger than 1000 bytes"),
    ],
)
async def test_each_limit_ends_a_run_with_a_sentence(
    client: CodeClient, program: str, limits: dict[str, Any], end: str, sentence: str
) -> None:
    answer = await client.run(program, limits=limits)
    assert answer["end"] == end, answer
    assert sentence in answer["message"]
    assert answer["value"] is None
    if end == "calls":
        assert len(answer["calls"]) == 3


@pytest.mark.req("C-02")
@pytest.mark.parametrize(
    ("limits", "message"),
    [({"calls": 5000}, "1000"), ({"seconds": 0}, "greater than 0"), ({"speed": 1}, "speed")],
)
async def test_limits_have_maxima(client: CodeClient, limits: dict[str, Any], message: str) -> None:
    error = (await client.run("1", limits=limits))["error"]
    assert error["code"] == "VALIDATION_ERROR"
    assert message in error["message"]
    (text,), is_error = await client.call("run_code", code="1", limits=limits)
    assert is_error
    assert text.startswith("limits.")


async def test_a_session_keeps_named_results_and_nothing_else(client: CodeClient) -> None:
    saved = await client.run('left = 1\nawait save_result("list", [1, 2])', session="work")
    assert saved["end"] == "done", saved
    assert (await client.run('await load_result("list")', session="work"))["value"] == [1, 2]
    await client.run('await save_result("list", [3])', session="work")
    assert (await client.run('await load_result("list")', session="work"))["value"] == [3]
    assert "NOT_FOUND" in (await client.run('await load_result("list")', session="other"))["message"]
    assert "only in a session" in (await client.run('await load_result("list")'))["message"]
    assert (await client.run("left", session="work"))["end"] == "rejected"


async def test_the_audit_links_calls_to_their_run(client: CodeClient) -> None:
    answer = await client.run('await tools.box.echo({"text": "linked"})')

    async def list_linked() -> list[tuple[str, str]]:
        page = await client.app.tools.call_log.list_events(AuditQuery(AuditKind.CALLS, limit=50))
        return sorted((event.tool, event.outcome) for event in page.events if event.request_id == answer["run_id"])

    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await list_linked() != [("box__echo", "ok"), ("run_code", "ok")]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_the_audit_counts_the_results_that_a_program_got(client: CodeClient) -> None:
    run_id = (await client.run('await search_tools("echo the text slowly", limit=1)'))["run_id"]

    async def list_counts() -> list[int]:
        page = await client.app.tools.call_log.list_events(AuditQuery(AuditKind.SEARCHES, limit=50))
        return [event.hits for event in page.events if event.request_id == run_id]

    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (counts := await list_counts()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert counts == [1]


async def test_what_a_profile_hides_is_hidden_from_programs(client: CodeClient) -> None:
    program = 'await tools.box.slow({"seconds": 0})'
    (text,), is_error = await client.call("run_code", "few", code=program)
    assert is_error
    assert "tools.box.slow: no such tool" in text
    around = 'call = eval("call_host")\nawait call("call_tool", {"tool_id": "box__slow", "arguments": {"seconds": 0}})'
    texts, is_error = await client.call("run_code", "few", code=around)
    assert is_error
    assert "NOT_FOUND: no such tool: 'box__slow'" in texts[0]


async def test_a_large_value_is_cut_and_can_be_read(client: CodeClient) -> None:
    (text,), is_error = await client.call("run_code", code='[{"number": i, "text": "x" * 50} for i in range(2000)]')
    assert not is_error
    assert len(text) < 50_000
    assert "read_result(handle=" in text


async def test_progress_grows_with_the_calls_of_a_program(client: CodeClient) -> None:
    reported: list[tuple[float, str]] = []

    async def report(progress: float, total: float | None, message: str) -> None:
        reported.append((progress, message))

    caller = RunCaller(OWNER, CallRelay(on_progress=report, user=""), may_search=True)
    program = 'await tools.box.count({"steps": 2})\nawait tools.box.count({"steps": 1})'
    assert (await client.app.code.run_code.run(RunRequest(program), caller)).outcome.end == "done"
    assert [progress for progress, _ in reported] == sorted({progress for progress, _ in reported})
    assert [message for _, message in reported][-1] == "box__count: done"


async def test_a_key_that_may_not_search_runs_programs_that_do_not(client: CodeClient) -> None:
    caller = RunCaller(OWNER, CallRelay(user=""), may_search=False)
    request = RunRequest('await tools.box.echo({"text": "a"})\nawait search_tools("echo")')
    report = await client.app.code.run_code.run(request, caller)
    assert [call.outcome for call in report.calls] == ["ok", "FORBIDDEN"]


async def test_types_are_printed_within_a_budget(client: CodeClient) -> None:
    response = await client.http.get("/api/v1/run/types", params={"q": "echo", "limit": 5, "max_tokens": 300})
    found = response.json()
    assert "async def echo(self, params: BoxEchoParams) -> BoxEchoResult" in found["types"]
    assert found["tokens"] <= 300
    (text,), _ = await client.call("search_tools", query="echo", output="types", limit=1)
    assert "class BoxEchoParams(TypedDict):" in text


async def test_a_search_for_types_is_the_same_search(client: CodeClient) -> None:
    everywhere, _ = await client.call("search_tools", query="echo", output="types", strategy="direct")
    assert "class BoxEchoParams(TypedDict):" in everywhere[0]
    (text,), is_error = await client.call("search_tools", query="echo", output="types", skill_ids=["no_such_skill"])
    assert is_error
    assert text.startswith("skill_ids: no such skill: 'no_such_skill'")
    (text,), is_error = await client.call("search_tools", query="echo", output="types", type="prompt")
    assert is_error
    assert text == "type: programs call tools, and no prompts: leave it out, or leave out output=types"


async def test_a_search_for_types_is_noted_for_feedback(client: CodeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = []
    monkeypatch.setattr(client.app.tools.feedback, "note_search", lambda _, query, ids: noted.append((query, *ids)))
    await client.call("search_tools", query="echo", output="types", limit=1)
    await client.http.get("/api/v1/run/types", params={"q": "box echo", "limit": 1})
    assert noted == [("echo", "box__echo"), ("box echo", "box__echo")]


async def test_types_of_quarantined_tools_are_left_out_and_named(
    client: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_changed(ids: list[str]) -> dict[str, Item]:
        return {each: Item("box", "echo", quarantine="its description has changed") for each in ids}

    async def choose_none(language: Language, _: list[str]) -> ProgramTools:
        return ProgramTools(language, [])

    monkeypatch.setattr(client.app.tools.listing, "by_id", read_changed)
    monkeypatch.setattr(client.app.code.toolsets, "choose", choose_none)
    texts, is_error = await client.call("search_tools", query="echo", output="types", limit=1)
    assert (texts, is_error) == (["Quarantined, a person has to approve them first: box__echo"], False)


async def test_health_says_which_languages_are_there(client: CodeClient) -> None:
    health = (await client.http.get("/health")).json()
    assert health["code"]["python"] == "ready"


async def test_the_tool_is_listed_where_programs_can_be_run(client: CodeClient) -> None:
    tools = (await client.send("tools/list"))["tools"]
    (tool,) = [each for each in tools if each["name"] == "run_code"]
    assert tool["inputSchema"]["properties"]["language"]["enum"] == ["python"]
    assert [each["name"] for each in tools if each["name"] not in MAY_BE_EMPTY] == [
        *("search_tools", "describe_tool", "call_tool", "run_code", "read_result")
    ]
    client_info = {"name": "test", "version": "1"}
    shaken = await client.send("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client_info)
    assert "run_code runs a program" in shaken["instructions"]


async def test_a_program_that_was_right_is_not_checked_again(
    client: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.run("1")
    checked, check = [], MontySandbox.check

    async def count(sandbox: MontySandbox, program: Program, seconds: float) -> list[ProgramProblem]:
        checked.append(program.source)
        return await check(sandbox, program, seconds)

    monkeypatch.setattr(MontySandbox, "check", count)
    right, wrong = 'await tools.box.echo({"text": "again"})', 'await tools.box.echo({"text": 1})'
    assert [(await client.run(program))["end"] for program in (right, right)] == ["done", "done"]
    assert [(await client.run(program))["end"] for program in (wrong, wrong)] == ["rejected", "rejected"]
    assert checked == [right, wrong, wrong]


async def test_a_timeout_of_something_else_is_not_the_limit_of_the_run(
    client: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> ProgramOutcome:
        raise TimeoutError("the store does not answer")

    monkeypatch.setattr(MontySandbox, "run", fail)
    with pytest.raises(TimeoutError, match="the store does not answer"):
        await client.app.code.run_code.run(RunRequest("1"), RunCaller(OWNER, CallRelay(user=""), may_search=True))


async def test_a_program_is_only_checked_when_that_is_all(client: CodeClient) -> None:
    answer = await client.run('await tools.box.echo({"text": "a"})', check_only=True)
    assert (answer["end"], answer["calls"]) == ("done", [])


@pytest.mark.parametrize(
    "program",
    [
        "# see tools.example.com\n1",
        'text = "tools.example.com"\nlen(text) and 1',
        'class Box:\n    tools = {"a": 1}\nbox = Box()\nlist(box.tools.items())[0][1]',
    ],
)
async def test_what_only_looks_like_a_tool_is_no_mistake(client: CodeClient, program: str) -> None:
    answer = await client.run(program)
    assert (answer["end"], answer["value"]) == ("done", 1), answer


async def test_only_the_first_wrong_names_are_compared_with_others(
    client: CodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def count(word: str, *given: Any, **options: Any) -> list[str]:
        compared.append(word)
        return get_close_matches(word, *given, **options)

    monkeypatch.setattr(toolset, "get_close_matches", count)
    answer = await client.run("\n".join(f"await tools.box.e{number % 200}({{}})" for number in range(300)))
    assert (answer["end"], len(answer["problems"])) == ("rejected", toolset.MAX_PROBLEMS)
    assert answer["problems"][0]["message"].startswith("tools.box.e0: no such tool")
    assert len(compared) == toolset.MAX_PROBLEMS


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ({"output": "json"}, "output: must be one of list, types, or left out"),
        ({"language": "ruby"}, "language: must be one of python, typescript, or left out"),
    ],
)
async def test_an_unknown_output_or_language_is_refused(
    client: CodeClient, arguments: dict[str, str], refusal: str
) -> None:
    (text,), is_error = await client.call("search_tools", query="echo", **arguments)
    assert is_error
    assert refusal in text


async def test_programs_see_which_tools_are_quarantined(client: CodeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    describe = client.app.tools.call.describe

    async def describe_changed(item_id: str) -> Item:
        if item_id == "box__slow":
            raise NotFound("no such tool")
        return replace(await describe(item_id), quarantine="its description has changed")

    monkeypatch.setattr(client.app.tools.call, "describe", describe_changed)
    program = """
found = await search_tools("echo") + await search_tools("slow")
about = await describe_tool("box__echo")
return [sorted(each["id"] for each in found), [each["quarantined"] for each in found], about["quarantined"]]
"""
    ids, marks, about = (await client.run(program))["value"]
    assert "box__echo" in ids
    assert "box__slow" not in ids
    assert {*marks, about} == {"its description has changed"}


async def test_a_value_that_ends_the_process_by_its_memory_is_a_limit_and_no_internal_error(client: CodeClient) -> None:
    answer = await client.run("return [[] for _ in range(300_000)]")
    assert answer.get("end") in {"memory", "failed"}, answer
    assert (await client.run("return 1"))["value"] == 1
