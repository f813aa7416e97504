"""Programs in TypeScript over HTTP: typed tools, as in Python."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.surfaces.code.conftest import TIMEOUT_SECONDS, CodeClient, open_code_mode
from toolscript.adapters.deno.sandbox import DenoSandbox

pytest.importorskip("deno", reason="Deno has no wheel for this platform")
pytestmark = pytest.mark.req("C-01")


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ('import fs from "fs";\nreturn 1;', "nothing can be imported: "),
        ("export default 1;", "nothing can be exported: "),
        ("export default async function () { return 1; }", "nothing can be exported: "),
        ('return await fetch("http://a");', "Cannot find name 'fetch': there is no network here, use a tool"),
        ('return Deno.env.get("HOME");', "Cannot find name 'Deno': there are no files and no environment here"),
        ("return None;", "Cannot find name 'None': the program is read as TypeScript"),
    ],
)
async def test_a_typical_mistake_says_what_to_do(typescript: CodeClient, program: str, hint: str) -> None:
    answer = await typescript.run(program)
    assert answer["end"] == "rejected", answer
    assert answer["problems"][0]["message"].startswith(hint)


@pytest.mark.parametrize(
    ("program", "value"),
    [
        (
            'try { await tools.box.fail({ message: "no" }); } catch (error) { return error.message.slice(0, 8); }',
            "UPSTREAM",
        ),
        ('return new Map([["a", 1]]);', {"a": 1}),
        ("return new Set([1, 2]);", [1, 2]),
        ("const double = (x) => x * 2;\nreturn double(2);", 4),
        ("await new Promise((resolve) => setTimeout(resolve, 1));\nreturn 1;", 1),
    ],
)
async def test_what_agents_write_passes_the_check(typescript: CodeClient, program: str, value: object) -> None:
    answer = await typescript.run(program)
    assert (answer["end"], answer["value"]) == ("done", value), answer


async def test_a_value_that_was_not_awaited_is_a_mistake(typescript: CodeClient) -> None:
    answer = await typescript.run('return [tools.box.echo({ text: "a" })];')
    assert answer["end"] == "failed"
    assert "use `await Promise.all(calls)`" in answer["message"]


async def test_an_agent_learns_which_calls_it_did_not_await(typescript: CodeClient) -> None:
    program = "tools.box.slow({ seconds: 600 });\nawait tools.box.echo({ text: 'a' });\nreturn 1;"
    texts, is_error = await typescript.call("run_code", code=program)
    assert (texts, is_error) == (["1", "Not awaited, so ended with the program: box__slow"], False)


async def test_the_language_that_is_enabled_is_the_default(typescript: CodeClient) -> None:
    program = 'const said: { text: string } = await tools.box.echo({ text: "hi" });\nreturn said.text;'
    answer = await typescript.run(program)
    assert (answer["language"], answer["value"]) == ("typescript", "hi"), answer
    assert await typescript.call("run_code", code=program) == (['"hi"'], False)
    found = (await typescript.http.get("/api/v1/run/types", params={"q": "echo"})).json()
    assert found["language"] == "typescript"
    (text,), _ = await typescript.call("search_tools", query="echo", output="types")
    assert "interface BoxEchoParams" in text


async def test_a_program_calls_tools_together(typescript: CodeClient) -> None:
    answer = await typescript.run(
        """
interface Said { text: string }
const words: string[] = ["one", "two"];
const said: Said[] = await Promise.all(words.map((text) => tools.box.echo({ text })));
console.log("called twice");
return { texts: said.map((each) => each.text.toUpperCase()) };
""",
        language="typescript",
    )
    assert (answer["end"], answer["message"]) == ("done", None), answer["message"]
    assert answer["value"] == {"texts": ["ONE", "TWO"]}
    assert answer["printed"] == "called twice\n"
    assert [call["function"] for call in answer["calls"]] == ["box__echo"] * 2


@pytest.mark.req("C-02")
async def test_a_wrong_argument_is_found_before_anything_runs(typescript: CodeClient) -> None:
    source = 'await tools.box.echo({ text: "a" });\nawait tools.box.echo({ text: 5 });'
    answer = await typescript.run(source, language="typescript")
    assert (answer["end"], answer["line"], answer["calls"]) == ("rejected", 2, [])
    (problem,) = answer["problems"]
    assert problem["message"] == "Type 'number' is not assignable to type 'string'."
    assert problem["signatures"][0].startswith("await tools.box.echo({text: string")


async def test_a_failing_tool_raises_an_error_with_the_line(typescript: CodeClient) -> None:
    source = """try {
  await tools.box.fail({ message: "out of paper" });
} catch (error) {
  console.log(String(error));
}
await tools.box.fail({ message: "still" });
"""
    answer = await typescript.run(source, language="typescript")
    assert (answer["end"], answer["line"]) == ("failed", 6), answer
    assert "out of paper" in answer["printed"]
    assert "still" in answer["message"]


async def test_a_program_searches_and_describes(typescript: CodeClient) -> None:
    source = """
const [found] = await search_tools("echo", 1);
const about: any = await describe_tool(found.id);
return [found.id, found.call, Object.keys(about.input_schema.properties)];
"""
    answer = await typescript.run(source, language="typescript")
    assert answer["value"] == ["box__echo", "tools.box.echo", ["text", "times"]], answer


@pytest.mark.req("C-02")
async def test_a_limit_ends_a_run_with_a_sentence(typescript: CodeClient) -> None:
    source = 'await tools.box.echo({ text: "a" });\nwhile (true) {}'
    answer = await typescript.run(source, language="typescript", limits={"cpu_seconds": 0.5})
    assert (answer["end"], len(answer["calls"])) == ("cpu", 1), answer
    assert "ran longer than it may" in answer["message"]


async def test_an_unknown_tool_is_named_with_the_nearest(typescript: CodeClient) -> None:
    for call in ("tools.box.ecko({})", 'tools.box["ecko"]({})'):
        answer = await typescript.run(f"// see tools.example.com\nawait {call};", language="typescript")
        hint = "tools.box.ecko: no such tool: did you mean tools.box.echo?"
        assert (answer["end"], answer["message"]) == ("rejected", f"line 2: {hint}"), answer


async def test_a_gateway_prepares_its_sandboxes_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def prepare(_: DenoSandbox) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(DenoSandbox, "prepare", prepare)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async with open_code_mode(tmp_path, "typescript"):
            await began.wait()
        await ended.wait()


@pytest.mark.req("C-02")
async def test_an_error_with_a_forged_place_fails_as_any_other(typescript: CodeClient) -> None:
    program = (
        "const url = String(new Error().stack).match(/blob:[^\\s)]*?(?=:\\d+:\\d+)/)![0];\n"
        'throw new Error(url + ":" + "9".repeat(5000) + ":1");'
    )
    assert (await typescript.run(program))["end"] == "failed"
