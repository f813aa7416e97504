"""The contract of connections to servers: stdio with a scripted server, HTTP and SSE with the SDK's server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from tests.fixtures.coroutines import think_for
from tests.fixtures.examples import choose
from tests.servers import KEY, make_scripted_server, serving_http
from tests.servers.gateway_process import is_alive, wait_until
from toolscript.adapters.mcp.client import McpServers
from toolscript.adapters.mcp.lenient_reader import clean
from toolscript.adapters.mcp.messages import parse_message
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import TimedOut, Unavailable, UpstreamFailed
from toolscript.domain.servers import CallRelay, ServerSpec, Transport
from toolscript.ports.servers import ToolServer

TIMEOUT_SECONDS = 60.0


@pytest.fixture(scope="session")
def web() -> Iterator[Callable[[Transport], ServerSpec]]:
    """Specs of a server on HTTP that wants a key."""
    with ExitStack() as stack:
        server = stack.enter_context(serving_http(key=True))

        def spec(transport: Transport) -> ServerSpec:
            url = server.http if transport is Transport.HTTP else server.sse
            return ServerSpec("web", transport, url=url, headers={"Authorization": f"Bearer {KEY}"})

        yield spec


@pytest.fixture(params=[Transport.STDIO, Transport.HTTP, Transport.SSE])
def spec(request: pytest.FixtureRequest, web: Callable[[Transport], ServerSpec]) -> ServerSpec:
    """A healthy server, over each transport."""
    return (
        make_scripted_server(prompts=True, resources=True) if request.param is Transport.STDIO else web(request.param)
    )


async def tool(server: ToolServer, name: str) -> Item:
    return next(i for i in (await server.list_items()).items if i.name == name)


@pytest.mark.req("G-03", "X-02")
async def test_tools_prompts_and_resources_are_listed(spec: ServerSpec) -> None:
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
        listing = await server.list_items()
    assert listing.problems == []
    assert {item.type for item in listing.items} == set(ItemType) - {ItemType.AGENT_SKILL}
    echo = next(item for item in listing.items if item.name == "echo")
    assert (echo.id, echo.input_schema["required"]) == (f"{spec.name}__echo", ["text"])  # type: ignore[index]
    greet = next(item for item in listing.items if item.type is ItemType.PROMPT and item.name == "greet")
    assert greet.id == f"{spec.name}__prompt:greet"


@pytest.mark.req("G-05", "X-02")
async def test_a_call_returns_the_structured_content(spec: ServerSpec) -> None:
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
        result = await server.call(await tool(server, "echo"), {"text": "grüße"}, within=TIMEOUT_SECONDS)
    assert result.structured == {"text": "grüße"}
    assert not result.is_error
    assert "grüße" in json.loads(result.text).values()


@pytest.mark.req("G-03")
async def test_a_server_completes_arguments_if_it_offers_to() -> None:
    params = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "A"}}
    offering, other = make_scripted_server(completions=True), make_scripted_server(prompts=True)
    async with McpServers().connect(offering, within=TIMEOUT_SECONDS) as server:
        completed = (await server.complete(params, within=TIMEOUT_SECONDS))["completion"]
    assert (json.loads(completed["values"][0]), completed["total"]) == (params, 7)
    async with McpServers().connect(other, within=TIMEOUT_SECONDS) as server:
        assert await server.complete(params, within=TIMEOUT_SECONDS) == {"completion": {"values": []}}


@pytest.mark.req("G-03")
async def test_a_resource_is_followed_until_the_follower_stops(tmp_path: Path) -> None:
    (file := tmp_path / "updates").write_text("0")
    started, updates = asyncio.Event(), asyncio.Queue[str]()
    spec = make_scripted_server(resources=True, subscriptions=str(file))
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server, asyncio.timeout(TIMEOUT_SECONDS):
        following = server.follow_resource("memo://welcome", on_start=started.set, on_update=updates.put_nowait)
        task = asyncio.create_task(following)
        await started.wait()
        file.write_text("1")
        assert await updates.get() == "memo://welcome"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        seen = await server.call(await tool(server, "seen"), {}, within=TIMEOUT_SECONDS)
    assert seen.structured["resources/unsubscribe"] == 1


@pytest.mark.req("G-03")
async def test_a_server_that_reports_no_changes_says_so(spec: ServerSpec) -> None:
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
        with pytest.raises(UpstreamFailed):
            await server.follow_resource("memo://none", on_start=lambda: None, on_update=lambda _: None)


@pytest.mark.req("G-03", "G-05")
async def test_prompts_and_resources_can_be_read(spec: ServerSpec) -> None:
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
        items = {item.id.partition("__")[2]: item for item in (await server.list_items()).items}
        prompt = await server.call(items["prompt:greet"], {"who": "Ada"}, within=TIMEOUT_SECONDS)
        resource = await server.call(items["resource:welcome"], {}, within=TIMEOUT_SECONDS)
    assert prompt.structured is not None
    assert prompt.structured["messages"]
    assert resource.structured is not None
    assert resource.structured["contents"][0]["uri"] == "memo://welcome"


@pytest.mark.req("G-05", "X-02")
async def test_progress_comes_in_order_and_before_the_result(spec: ServerSpec) -> None:
    spec = make_scripted_server(tools=["count"]) if spec.transport is Transport.STDIO else spec
    steps: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
        count = await tool(server, "count")
        relay = CallRelay(on_progress=note)
        result = await server.call(count, {"steps": 5}, within=TIMEOUT_SECONDS, relay=relay)
        assert (result.text, steps) == ("counted", [(n, 5, f"step {n}") for n in range(1, 6)])
        assert (await server.call(count, {"steps": 5}, within=TIMEOUT_SECONDS)).text == "counted"


@pytest.mark.req("G-05", "X-02")
@pytest.mark.parametrize("is_late", [True, False], ids=["timeout", "cancelled"])
async def test_the_server_learns_that_nobody_waits_for_a_call(spec: ServerSpec, is_late: bool) -> None:
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server, asyncio.timeout(TIMEOUT_SECONDS):
        slow, seen = await tool(server, "slow"), await tool(server, "seen")
        before = (await server.call(seen, {}, within=TIMEOUT_SECONDS)).structured.get("notifications/cancelled", 0)
        call = asyncio.create_task(server.call(slow, {"seconds": 90}, within=0.3 if is_late else TIMEOUT_SECONDS))
        if not is_late:
            await asyncio.wait({call}, timeout=0.3)
            call.cancel()
        with pytest.raises(TimedOut if is_late else asyncio.CancelledError):
            await call
        after = before
        while after == before:
            after = (await server.call(seen, {}, within=TIMEOUT_SECONDS)).structured.get("notifications/cancelled", 0)
        assert after == before + 1


@pytest.mark.req("G-05")
async def test_a_caller_who_answers_questions_limits_the_time_itself() -> None:
    answer = {"action": "accept", "content": {"name": "Ada"}}
    async with McpServers().connect(make_scripted_server(tools=["ask"]), within=TIMEOUT_SECONDS) as server:
        relay = CallRelay(ask=think_for(2 * TIMEOUT_SECONDS, answer))
        result = await server.call(await tool(server, "ask"), {}, within=TIMEOUT_SECONDS, relay=relay)
    assert result.structured == {"result": answer}


@pytest.mark.req("X-02")
async def test_a_healthy_server_answers_pings(spec: ServerSpec) -> None:
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server:
        await server.ping()


@pytest.mark.req("G-03", "X-02")
async def test_a_change_is_announced(spec: ServerSpec, tmp_path: Path) -> None:
    watched = tmp_path / "lists.json"
    watched.write_text('{"tools": [{"name": "one"}]}')
    spec = make_scripted_server(watch=str(watched)) if spec.transport is Transport.STDIO else spec
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS) as server, asyncio.timeout(TIMEOUT_SECONDS):
        before = {item.name for item in (await server.list_items()).items}
        changed = asyncio.create_task(server.wait_for_change())
        if spec.transport is Transport.STDIO:
            watched.write_text('{"tools": [{"name": "one"}, {"name": "two"}]}')
        else:
            name = f"grown_{spec.transport}"
            await server.call(await tool(server, "grow"), {"name": name}, within=TIMEOUT_SECONDS)
        await changed
        assert len({item.name for item in (await server.list_items()).items} - before) == 1


@pytest.mark.req("G-05")
async def test_an_error_of_the_server_is_passed_on_with_its_message() -> None:
    async with McpServers().connect(make_scripted_server(), within=TIMEOUT_SECONDS) as server:
        failed = await server.call(await tool(server, "fail"), {"message": "out of ink"}, within=TIMEOUT_SECONDS)
        assert (failed.is_error, failed.text) == (True, "out of ink")
        with pytest.raises(UpstreamFailed, match="out of paper") as caught:
            await server.call(
                await tool(server, "error"), {"message": "out of paper", "code": -32050}, within=TIMEOUT_SECONDS
            )
    assert caught.value.details["upstream_code"] == -32050


@pytest.mark.req("G-05")
async def test_a_call_ends_at_its_timeout_and_the_next_one_works() -> None:
    async with McpServers().connect(make_scripted_server(), within=TIMEOUT_SECONDS) as server:
        slow, echo = await tool(server, "slow"), await tool(server, "echo")
        started = time.monotonic()
        with pytest.raises(TimedOut, match=r"scripted__slow did not answer within 0\.2 s"):
            await server.call(slow, {"seconds": 90}, within=0.2)
        assert time.monotonic() - started < 60
        assert (await server.call(echo, {"text": "x"}, within=TIMEOUT_SECONDS)).structured == {"text": "x"}


@pytest.mark.req("G-02", "G-05")
async def test_a_server_that_exits_during_a_call_is_unavailable_with_the_reason() -> None:
    async with McpServers().connect(make_scripted_server(), within=TIMEOUT_SECONDS) as server:
        with pytest.raises(Unavailable, match="exited with code 7"):
            await server.call(await tool(server, "die"), {}, within=TIMEOUT_SECONDS)
        assert "exited with code 7" in await asyncio.wait_for(server.wait_for_disconnect(), TIMEOUT_SECONDS)
        with pytest.raises(Unavailable):
            await server.ping()


@pytest.mark.req("G-02", "X-03")
@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (make_scripted_server(crash=True), r"exited with code 3: .+"),
        (make_scripted_server(hang=True), r"no answer within 1 s"),
        (ServerSpec("x", Transport.STDIO, command="no-such-command"), r"command not found: no-such-command"),
        (ServerSpec("x", Transport.STDIO, command="sh", cwd="/no/such"), r"working folder not found: /no/such"),
        (ServerSpec("x", Transport.HTTP, url="http://127.0.0.1:9/mcp"), r"connect"),
        (ServerSpec("x", Transport.SSE, url="http://127.0.0.1:9/sse"), r"connect"),
    ],
    ids=["crashes", "hangs", "no command", "no folder", "no http", "no sse"],
)
async def test_a_server_that_cannot_be_reached_is_unavailable_with_the_reason(spec: ServerSpec, reason: str) -> None:
    with pytest.raises(Unavailable) as caught:
        async with McpServers().connect(spec, within=1.0 if "hang" in str(spec.args) else TIMEOUT_SECONDS):
            pytest.fail("connected")
    import re

    assert re.search(reason, caught.value.message), caught.value.message


@pytest.mark.req("G-02", "X-04")
@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
async def test_a_wrong_key_gives_the_http_status_and_is_never_shown(
    web: Callable[[Transport], ServerSpec], transport: Transport
) -> None:
    right = web(transport)
    wrong = ServerSpec("web", transport, url=right.url, headers={"Authorization": "Bearer my-secret"})
    with pytest.raises(Unavailable, match="401") as caught:
        async with McpServers().connect(wrong, within=TIMEOUT_SECONDS):
            pytest.fail("connected")
    assert "my-secret" not in caught.value.message


@pytest.mark.req("X-04")
async def test_a_server_gets_its_own_variables_and_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", "ours")
    async with McpServers().connect(make_scripted_server(env={"TOKEN": "theirs"}), within=TIMEOUT_SECONDS) as server:
        env = await tool(server, "env")
        text = [
            (await server.call(env, {"name": n}, within=TIMEOUT_SECONDS)).text for n in ("TOKEN", "TOOLSCRIPT_API_KEY")
        ]
    assert "theirs" in text[0]
    assert "ours" not in text[1]


@pytest.mark.req("G-02")
async def test_a_server_gets_the_proxies_and_certificates_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = {
        "HTTPS_PROXY": "http://proxy:3128",
        "https_proxy": "http://proxy:3128",
        "no_proxy": "localhost,.example.com",
        "SSL_CERT_FILE": "/certificates.pem",
        "NODE_EXTRA_CA_CERTS": "/certificates.pem",
        "npm_config_cafile": "/certificates.pem",
    }
    for name, value in passed.items():
        monkeypatch.setenv(name, value)
    async with McpServers().connect(make_scripted_server(), within=TIMEOUT_SECONDS) as server:
        env = await tool(server, "env")
        for name, value in passed.items():
            assert value in (await server.call(env, {"name": name}, within=TIMEOUT_SECONDS)).text


@pytest.mark.req("X-04")
@pytest.mark.parametrize("shown", ["$ALL_PROXY", "for s3cr#t/pw", "Basic am9lOnMzY3IjdC9wdw=="])
async def test_the_password_of_a_proxy_is_not_repeated(monkeypatch: pytest.MonkeyPatch, shown: str) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://joe:s3cr%23t%2Fpw@proxy:3128")
    lines: list[str] = []
    command = ("-c", f'echo "cannot use the proxy {shown}" >&2; exit 1')
    spec = ServerSpec("x", Transport.STDIO, command="sh", args=command)
    with pytest.raises(Unavailable, match=r"cannot use the proxy .*\*\*\*") as caught:
        async with McpServers().connect(spec, within=TIMEOUT_SECONDS, on_log=lines.append):
            pytest.fail("connected")
    text = f"{caught.value.message}{lines}"
    assert not any(secret in text for secret in ("s3cr", "am9lOn"))


@pytest.mark.req("X-04")
async def test_a_secret_on_standard_error_is_not_repeated() -> None:
    spec = ServerSpec(
        "x",
        Transport.STDIO,
        command="sh",
        args=("-c", "echo cannot log in with $TOKEN >&2; exit 1"),
        env={"TOKEN": "hush-hush"},
    )
    with pytest.raises(Unavailable, match=r"cannot log in with \*\*\*"):
        async with McpServers().connect(spec, within=TIMEOUT_SECONDS):
            pytest.fail("connected")


@pytest.mark.req("G-02")
async def test_garbage_between_messages_is_ignored() -> None:
    async with McpServers().connect(make_scripted_server(noisy=True), within=TIMEOUT_SECONDS) as server:
        echo = await tool(server, "echo")
        for number in range(5):
            result = await server.call(echo, {"text": str(number)}, within=TIMEOUT_SECONDS)
            assert result.structured == {"text": str(number)}


@pytest.mark.req("G-02")
async def test_lines_of_standard_error_are_passed_on_without_secrets_and_colours() -> None:
    lines: list[str] = []
    written = [
        "hello <script>alert(1)</script>",
        "",
        "\x1b[31mred\x1b[0m 10 %\r100 %",
        "with hush-hush-hush",
        "Authorization: Bearer abcdefghijklmnop",
        "x" * 20_000,
    ]
    spec = make_scripted_server(log=written, env={"TOKEN": "hush-hush-hush"})
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS, on_log=lines.append) as server:
        await server.list_items()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(lines) < 5:  # noqa: ASYNC110  (another process writes them)
                await asyncio.sleep(0.01)
    first, second, third, fourth, fifth = lines
    assert (first, second, third) == (written[0], "100 %", "with ***")
    assert "abcdef" not in fourth
    assert fifth == "x" * 1000 + "…"


@pytest.mark.req("G-02", "X-04")
async def test_long_secrets_and_those_of_several_lines_are_in_no_line_of_the_log() -> None:
    lines: list[str] = []
    key = "-----BEGIN KEY-----\nMIIBOgIBAAJBAKfirst\nsecondKj34GkxFhD9\n-----END KEY-----\n"
    long = "abcdefgh" * 1000
    written = ["MIIBOgIBAAJBAKfirst", "at secondKj34GkxFhD9", json.dumps({"value": key}), f"with {long}", "done"]
    spec = make_scripted_server(log=written, env={"PEM": key, "LONG": long})
    async with McpServers().connect(spec, within=TIMEOUT_SECONDS, on_log=lines.append) as server:
        await server.list_items()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while "done" not in lines:  # noqa: ASYNC110  (another process writes them)
                await asyncio.sleep(0.01)
    assert lines == ["***", "at ***", '{"value": "***"}', "with ***", "done"]


@pytest.mark.req("G-03")
async def test_lists_are_read_page_by_page() -> None:
    async with McpServers().connect(make_scripted_server(page_size=2), within=TIMEOUT_SECONDS) as server:
        paged = {item.name for item in (await server.list_items()).items}
    async with McpServers().connect(make_scripted_server(), within=TIMEOUT_SECONDS) as server:
        assert {item.name for item in (await server.list_items()).items} == paged


@pytest.mark.req("G-01")
async def test_only_the_tools_that_the_configuration_allows_are_listed() -> None:
    async with McpServers().connect(make_scripted_server(include=("e*",)), within=TIMEOUT_SECONDS) as server:
        assert {item.name for item in (await server.list_items()).items} == {"echo", "error", "env"}


@pytest.mark.req("G-02", "G-03")
async def test_a_bad_definition_costs_only_that_tool() -> None:
    async with McpServers().connect(make_scripted_server(sloppy=True), within=TIMEOUT_SECONDS) as server:
        listing = await server.list_items()
    names = {item.name for item in listing.items}
    assert {"echo", "twice", "untyped_schema", "no_schema", "null_everything", "listed_schema"} <= names
    text = "\n".join(listing.problems)
    assert "without a usable name" in text
    assert "'twice' is listed twice" in text
    assert "the input schema of 'listed_schema' is not an object" in text
    endless = next(item for item in listing.items if item.name == "endless")
    assert len(endless.description) == 20_000


@pytest.mark.extended
@pytest.mark.req("G-03")
async def test_all_real_listings_are_read_completely(shared_data: Path) -> None:
    files = sorted((shared_data / "mcp_servers").glob("*.json"))
    assert len(files) == 81

    async def read(file: Path) -> tuple[int, int]:
        raw = json.loads(await asyncio.to_thread(file.read_text, encoding="utf-8"))
        wanted = len({t["name"] for t in (raw["tools"] if isinstance(raw, dict) else raw)})
        async with McpServers().connect(make_scripted_server(file.stem, listing=str(file)), within=60) as server:
            return len((await server.list_items()).items), wanted

    counts = [await read(file) for file in files]
    assert [have for have, _ in counts] == [wanted for _, wanted in counts]
    assert sum(have for have, _ in counts) > 1300


@pytest.mark.req("G-02")
@pytest.mark.parametrize(
    "behaviour",
    choose([{}, {"deaf": True}, {"child": True}, {"deaf": True, "child": True}], {}, {"deaf": True, "child": True}),
)
async def test_nothing_of_a_server_is_left_running(behaviour: dict[str, Any]) -> None:
    async with McpServers().connect(make_scripted_server(**behaviour), within=TIMEOUT_SECONDS) as server:
        text = (await server.call(await tool(server, "pid"), {}, within=TIMEOUT_SECONDS)).structured
        assert text is not None
        processes = [psutil.Process(number) for number in text.values() if number]
        assert all(is_alive(process) for process in processes)
    # A busy machine ends a killed grandchild a moment later than its parent.
    await asyncio.to_thread(wait_until, lambda: not any(is_alive(process) for process in processes))


@pytest.mark.req("G-02")
async def test_nothing_is_left_running_when_connecting_is_cancelled() -> None:
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(Unavailable):
        async with McpServers().connect(make_scripted_server(hang=True, child=True, deaf=True), within=0.5):
            pytest.fail("connected")
    left = set(psutil.Process().children(recursive=True)) - before
    await asyncio.to_thread(wait_until, lambda: not any(is_alive(process) for process in left))


@pytest.mark.req("X-04")
@pytest.mark.parametrize(
    ("about", "line", "text"),
    [
        ({"args": ("postgresql://u:S3cretPw@h/db",)}, "cannot reach S3cretPw", "cannot reach ***"),
        ({"args": ("--api-key", "abcd1234")}, "bad key abcd1234", "bad key ***"),
        ({"args": ("--token=abcd1234",)}, "bad token abcd1234", "bad token ***"),
        ({"env": {"A": "abcd", "B": "abcdefgh"}}, "no abcdefgh", "no ***"),
        ({"args": ("--port", "8080")}, "port 8080 is taken", "port 8080 is taken"),
    ],
)
async def test_secrets_of_the_configuration_are_not_repeated(about: dict[str, Any], line: str, text: str) -> None:
    script = ("-c", f"echo '{line}' >&2; exit 1")
    spec = ServerSpec("x", Transport.STDIO, "sh", args=(*script, *about.get("args", ())), env=about.get("env", {}))
    with pytest.raises(Unavailable) as caught:
        async with McpServers().connect(spec, within=TIMEOUT_SECONDS):
            pytest.fail("connected")
    assert caught.value.message == f"exited with code 1: {text}"


@pytest.mark.req("G-02")
async def test_a_bug_of_the_caller_is_not_reported_as_the_servers_error() -> None:
    with pytest.raises(KeyError):
        async with McpServers().connect(make_scripted_server(), within=TIMEOUT_SECONDS):
            raise KeyError("ours")


@pytest.mark.req("G-02")
async def test_a_server_that_refuses_to_initialize_is_quoted() -> None:
    with pytest.raises(Unavailable, match="initialize is broken"):
        async with McpServers().connect(
            make_scripted_server(refuses=["initialize", "server/discover"]), within=TIMEOUT_SECONDS
        ):
            pytest.fail("connected")


ANSWERS = {
    "no object": b'{"jsonrpc": "2.0", "id": %d, "result": "text"}',
    "too deep": b'{"jsonrpc": "2.0", "id": %d, "result": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a number without end": b'{"jsonrpc": "2.0", "id": %d, "result": {"n": ' + b"9" * 5000 + b"}}",
}


@pytest.mark.req("G-05")
@pytest.mark.parametrize("kind", ANSWERS)
def test_a_request_whose_answer_is_unreadable_gets_an_error(kind: str) -> None:
    message = parse_message(ANSWERS[kind] % 7)
    assert isinstance(message, JSONRPCError)
    assert (message.id, message.error.message) == (7, "unreadable answer")


@pytest.mark.parametrize(
    "line", [b"Listening on 8080", b"[1, 2]", b'{"method": "x", "id": 7, "params": 5}', b"\xff\xfe"]
)
def test_lines_that_are_not_messages_are_skipped(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        parse_message(line)


@pytest.mark.req("G-03", "G-05")
def test_invalid_utf8_and_invalid_numbers_are_replaced() -> None:
    message = parse_message(b'{"jsonrpc": "2.0", "id": 7, "result": {"a": "\xff", "b": NaN, "c": 1e999}}')
    assert isinstance(message, JSONRPCResponse)
    assert clean(message.result) == {"a": "\ufffd", "b": None, "c": None}


@pytest.mark.req("G-03")
async def test_a_definition_that_is_nested_too_deeply_costs_only_that_tool(tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(150):
        deep = {"properties": {"p": deep}}
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "deep", "inputSchema": deep}, {"name": "a\ud800\0b"}]}))
    async with McpServers().connect(make_scripted_server(watch=str(lists)), within=TIMEOUT_SECONDS) as server:
        listing = await server.list_items()
    assert [item.name for item in listing.items] == ["a?b"]
    assert listing.problems == ["'deep' was left out: nested deeper than 64 levels"]


@pytest.mark.req("G-05")
@pytest.mark.parametrize("code", [-32000, -32001, -32002, -32603])
async def test_no_error_code_of_a_server_is_taken_for_a_lost_connection_or_a_timeout(code: int) -> None:
    async with McpServers().connect(make_scripted_server(), within=TIMEOUT_SECONDS) as server:
        failing = await tool(server, "error")
        with pytest.raises(UpstreamFailed, match="the paper is out") as failed:
            await server.call(failing, {"code": code, "message": "the paper is out"}, within=TIMEOUT_SECONDS)
        assert failed.value.details["upstream_code"] == code
        await server.call(await tool(server, "echo"), {"text": "still there"}, within=TIMEOUT_SECONDS)


@pytest.mark.req("G-05")
async def test_an_answer_above_the_limit_names_the_limit_and_the_next_call_works() -> None:
    servers = McpServers(max_answer_bytes=2**20)
    async with servers.connect(make_scripted_server(), within=TIMEOUT_SECONDS) as server:
        echo = await tool(server, "echo")
        with pytest.raises(UpstreamFailed, match=r"larger than 1 MiB: raise TOOLSCRIPT_CALL_MAX_MIB"):
            await server.call(echo, {"text": "a" * 3 * 2**20}, within=TIMEOUT_SECONDS)
        with pytest.raises(UpstreamFailed, match=r"larger than 1 MiB: raise TOOLSCRIPT_CALL_MAX_MIB"):
            await server.call(echo, {"text": [[]] * 200_000}, within=TIMEOUT_SECONDS)
        result = await server.call(echo, {"text": "short"}, within=TIMEOUT_SECONDS)
    assert result.structured == {"text": "short"}
