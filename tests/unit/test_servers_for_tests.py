"""The servers that other tests use behave as scripted, also when they misbehave."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.fixtures.examples import choose
from tests.servers import KEY, WebServer, make_scripted_spec, preloaded_command, serving_http
from tests.servers import postgres as postgres_servers
from tests.servers.postgres import connect, empty_database
from tests.servers.preloaded import VARIABLE, run_preloaded, toolscript_command
from tests.servers.real import QUICK, harmless_calls, real_servers
from tests.servers.scripted import BUILT_IN, CRASHED, DIED, METHOD_NOT_FOUND, SLOPPY, UPSTREAM_ERROR
from tests.servers.talk import Conversation
from toolscript import __version__

pytestmark = pytest.mark.slow

HEADERS = {"Authorization": f"Bearer {KEY}"}


def _names(items: list[Any]) -> list[str]:
    return [item["name"] for item in items]


def test_a_scripted_server_shakes_hands_in_the_version_of_the_client() -> None:
    with Conversation(make_scripted_spec(name="ours", prompts=True)) as talk:
        answer = talk.initialize("2024-11-05")
        assert answer["protocolVersion"] == "2024-11-05"
        assert answer["serverInfo"]["name"] == "ours"
        assert answer["capabilities"].keys() == {"tools", "prompts"}
        assert _names(talk.list_all("tools/list", "tools")) == list(BUILT_IN)


def test_tools_answer_as_they_are_named() -> None:
    with Conversation(make_scripted_spec(env={"SECRET": "s3"})) as talk:
        echoed = talk.call("echo", text="hi", times=2)
        assert echoed["structuredContent"] == {"text": "hi", "times": 2} == json.loads(echoed["content"][0]["text"])
        assert talk.call("fail", message="no") == {"content": [{"type": "text", "text": "no"}], "isError": True}
        refused = talk.request("tools/call", name="error", arguments={"message": "not today"})
        assert refused["error"] == {"code": UPSTREAM_ERROR, "message": "not today"}
        assert talk.call("pid")["structuredContent"] == {"pid": talk.process.pid, "child": None}
        assert talk.call("env", name="SECRET")["structuredContent"] == {"value": "s3"}
        assert talk.call("seen")["structuredContent"] == {"tools/call": 6}


def test_a_slow_call_holds_up_no_other_and_can_be_cancelled() -> None:
    def ask(seconds: float) -> int:
        return talk.ask("tools/call", name="slow", arguments={"seconds": seconds})

    with Conversation(make_scripted_spec()) as talk:
        ask(3600)
        quick = talk.ask("ping")
        assert talk.receive()["id"] == quick
        for _ in range(5):  # a busy machine may cancel it too late
            cancelled = ask(0.05)
            talk.send(method="notifications/cancelled", params={"requestId": cancelled})
            last = ask(0.1)
            answered = {talk.receive()["id"]}
            if answered == {last}:
                return
            talk.receive()
        pytest.fail("it answers calls that were cancelled")


def test_a_server_can_die_in_the_middle_of_a_call() -> None:
    with Conversation(make_scripted_spec()) as talk:
        with pytest.raises(EOFError):
            talk.call("die")
        assert talk.process.wait() == DIED


def test_what_a_server_lacks_is_a_method_not_found() -> None:
    with Conversation(make_scripted_spec()) as talk:
        for method in ("server/discover", "prompts/list", "resources/list", "resources/read"):
            assert talk.request(method)["error"]["code"] == METHOD_NOT_FOUND, method


def test_prompts_and_resources_are_listed_and_read() -> None:
    with Conversation(make_scripted_spec(tools=[], prompts=True, resources=True)) as talk:
        assert talk.list_all("tools/list", "tools") == []
        assert talk.list_all("prompts/list", "prompts")[0]["arguments"][0]["required"]
        assert len(talk.list_all("resources/list", "resources")) == 2
        assert talk.list_all("resources/templates/list", "resourceTemplates")[0]["uriTemplate"].startswith("memo://")
        prompt = talk.result("prompts/get", name="greet", arguments={"a": "b"})
        assert prompt["messages"][0]["content"]["text"] == 'greet {"a": "b"}'
        assert talk.result("resources/read", uri="memo://welcome")["contents"][0]["uri"] == "memo://welcome"


def test_a_catalog_is_served_in_pages_under_names_of_its_own(tmp_path: Path) -> None:
    rows = [
        {"id": str(n), "server": server, "name": name, "description": "", "input_schema": {"type": "object"}}
        for n, (server, name) in enumerate([("x:a", "find"), ("b", "find"), ("b", "find"), ("b", "read"), ("c", "die")])
    ]
    file = tmp_path / "tools.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    with Conversation(make_scripted_spec(catalog=str(file), page_size=2)) as talk:
        assert len(talk.result("tools/list")["tools"]) == 2
        names = _names(talk.list_all("tools/list", "tools"))
        assert names == ["x_a_find", "b_find", "b_find_2", "read", "die"]
        called = talk.call("die", why="it is not ours")
        assert json.loads(called["content"][0]["text"]) == {"tool": "die", "arguments": {"why": "it is not ours"}}
    with Conversation(make_scripted_spec(catalog=str(file), limit=1)) as talk:
        assert _names(talk.list_all("tools/list", "tools")) == ["x_a_find"]


@pytest.mark.extended
def test_thousands_of_tools_are_served(shared_data: Path) -> None:
    file = shared_data / "tools" / "mcp_catalog_A" / "tools.jsonl.gz"
    with Conversation(make_scripted_spec(catalog=str(file), page_size=1000)) as talk:
        names = _names(talk.list_all("tools/list", "tools"))
    assert len(names) == len(set(names)) == 5792


def test_a_kept_listing_is_served_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "listing.json"
    file.write_text(json.dumps({"package": "p", "tools": SLOPPY}), encoding="utf-8")
    with Conversation(make_scripted_spec(listing=str(file))) as talk:
        assert talk.list_all("tools/list", "tools") == SLOPPY


def test_a_sloppy_server_lists_good_tools_and_bad_ones() -> None:
    with Conversation(make_scripted_spec(sloppy=True, page_size=3)) as talk:
        assert talk.list_all("tools/list", "tools") == [*BUILT_IN.values(), *SLOPPY]
    assert max(len(str(tool)) for tool in SLOPPY) > 200_000


def test_a_hanging_server_reads_and_never_answers() -> None:
    with Conversation(make_scripted_spec(hang=True)) as talk:
        talk.ask("initialize")
        talk.end_input()
        with pytest.raises(EOFError):
            talk.receive()
        assert talk.process.wait() == 0


def test_a_crashing_server_says_why(tmp_path: Path) -> None:
    needed = tmp_path / "needed"
    for spec in (make_scripted_spec(crash=True), make_scripted_spec(crash_unless=str(needed))):
        with Conversation(spec) as talk:
            assert talk.process.wait() == CRASHED
            assert talk.errors.startswith("It ")
    needed.touch()
    with Conversation(make_scripted_spec(crash_unless=str(needed))) as talk:
        talk.initialize()


def test_a_server_can_crash_after_its_listing() -> None:
    with Conversation(make_scripted_spec(crash_after_listing=True, page_size=5)) as talk:
        talk.initialize()
        assert len(talk.list_all("tools/list", "tools")) == len(BUILT_IN)
        assert talk.process.wait() == CRASHED


def test_a_noisy_server_hides_its_answers_in_garbage() -> None:
    with Conversation(make_scripted_spec(noisy=True)) as talk:
        talk.initialize()
        assert talk.call("echo", text="hi")["structuredContent"] == {"text": "hi"}
        talk.end_input()
        assert len(talk.errors) > 2 * 65_536
        assert b"\xff\xfe\n" in talk.garbage


def test_a_server_can_start_slowly() -> None:
    begun = time.monotonic()
    with Conversation(make_scripted_spec(slow_start=0.2)) as talk:
        talk.initialize()
    assert time.monotonic() - begun >= 0.2


def test_a_deaf_server_ends_only_when_it_is_killed() -> None:
    with Conversation(make_scripted_spec(deaf=True)) as talk:
        talk.initialize()
        talk.process.terminate()
        talk.result("ping")
        talk.end_input()
        with pytest.raises(subprocess.TimeoutExpired):
            talk.process.wait(0.2)
        talk.process.kill()
        assert talk.process.wait() == -signal.SIGKILL


def test_a_child_outlives_the_server_that_started_it() -> None:
    with Conversation(make_scripted_spec(child=True)) as talk:
        child = talk.call("pid")["structuredContent"]["child"]
        talk.process.kill()
        talk.process.wait()
        os.kill(child, signal.SIGKILL)  # the child exists, and keeps the output open
        with pytest.raises(EOFError):
            talk.receive()


def test_a_changed_file_changes_the_lists_and_tells(tmp_path: Path) -> None:
    file = tmp_path / "lists.json"
    file.write_text(json.dumps({"tools": [BUILT_IN["echo"]]}), encoding="utf-8")
    with Conversation(make_scripted_spec(watch=str(file))) as talk:
        assert talk.initialize()["capabilities"]["tools"] == {"listChanged": True}
        assert _names(talk.list_all("tools/list", "tools")) == ["echo"]
        file.write_text(json.dumps({"tools": [BUILT_IN["pid"]], "prompts": [{"name": "p"}]}), encoding="utf-8")
        methods = [talk.receive()["method"], talk.receive()["method"]]
        assert methods == ["notifications/tools/list_changed", "notifications/prompts/list_changed"]
        assert _names(talk.list_all("tools/list", "tools")) == ["pid"]
        assert talk.call("pid")["structuredContent"]["pid"] == talk.process.pid


@pytest.fixture(scope="module")
def web() -> Iterator[WebServer]:
    with serving_http(key=True) as serving:
        yield serving


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(headers=HEADERS) as client:
        yield client


async def test_the_server_on_http_serves_both_transports(web: WebServer, http: httpx2.AsyncClient) -> None:
    for transport in (streamable_http_client(web.http, http_client=http), sse_client(web.sse, headers=HEADERS)):
        async with Client(transport) as client:
            assert (await client.call_tool("echo", {"text": "hi"})).structured_content == {"text": "hi"}
            received = (await client.call_tool("authorization", {})).structured_content
            assert received == {"value": HEADERS["Authorization"]}


async def test_the_server_on_http_wants_its_key(web: WebServer, http: httpx2.AsyncClient) -> None:
    for wrong in ("", "Bearer other"):
        for url in (web.http, web.sse):
            assert (await http.get(url, headers={"Authorization": wrong})).status_code == 401


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_server_on_http_tells_that_its_tools_changed(
    mode: Literal["legacy", "auto"], web: WebServer, http: httpx2.AsyncClient
) -> None:
    changed = anyio.Event()

    async def note(message: object) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            changed.set()

    transport = streamable_http_client(web.http, http_client=http)
    with anyio.fail_after(60):
        async with Client(transport, mode=mode, message_handler=note) as client, AsyncExitStack() as listening:
            if mode == "auto":
                await listening.enter_async_context(client.listen(tools_list_changed=True))
            await client.call_tool("grow", {"name": mode})
            await changed.wait()
            assert mode in [tool.name for tool in (await client.list_tools()).tools]


def test_real_servers_are_installed_and_each_has_a_harmless_call(tmp_path: Path) -> None:
    servers = real_servers(tmp_path)
    assert len(servers) >= 11
    assert servers.keys() == harmless_calls(tmp_path).keys() > set(QUICK)
    for entry in servers.values():
        assert Path(entry["command"]).is_file()
        assert Path(entry["cwd"]).is_dir()
    assert real_servers(tmp_path) == servers, "a second time changes nothing"


@pytest.mark.parametrize("name", ["filesystem", "calculator"])
def test_a_real_server_of_each_package_registry_answers(name: str, tmp_path: Path) -> None:
    tool, arguments = harmless_calls(tmp_path)[name]
    with Conversation(real_servers(tmp_path)[name]) as talk:
        talk.initialize()
        assert tool in _names(talk.list_all("tools/list", "tools"))
        assert not talk.call(tool, **arguments).get("isError")


@pytest.fixture(scope="module")
def command() -> Iterator[list[str]]:
    """`toolscript`, preloaded."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if VARIABLE not in os.environ:
            patch.setenv(VARIABLE, stack.enter_context(run_preloaded()))
        yield toolscript_command()


def test_a_preloaded_command_has_the_streams_and_the_exit_code_of_the_command(command: list[str]) -> None:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__
    refused = subprocess.run([*command, "search"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Missing argument 'QUERY'" in refused.stderr


@pytest.mark.parametrize("number", choose([signal.SIGTERM, signal.SIGKILL], signal.SIGKILL))
def test_a_preloaded_command_ends_with_its_caller(
    command: list[str], number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TEST_PID_FILE": tmp_path / "pid", "SEARCH_MODEL": "hashed-64", "DATA_DIR": tmp_path}.items():
        monkeypatch.setenv(f"TOOLSCRIPT_{name}", str(value))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    arguments = ["gateway", "start", "--port", "0"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert any("Serving" in line for line in process.stdout)
        pid = int((tmp_path / "pid").read_text())
        assert pid == json.loads((tmp_path / "gateway.json").read_text())["pid"] != process.pid
        process.send_signal(number)
        process.stdout.read()  # ends when the command has closed it
        assert process.wait() == (0 if number == signal.SIGTERM else -signal.SIGKILL)


def test_a_preloaded_command_that_is_killed_has_its_exit_code(command: list[str], tmp_path: Path) -> None:
    environment = os.environ | {"TOOLSCRIPT_DATA_DIR": str(tmp_path), "TOOLSCRIPT_SEARCH_MODEL": "hashed-64"}
    arguments = ["gateway", "start", "--port", "0"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert any("Serving" in line for line in process.stdout)
        os.kill(json.loads((tmp_path / "gateway.json").read_text())["pid"], signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def test_a_signal_reaches_a_preloaded_command_that_runs_later() -> None:
    """The socket stands for the process that runs commands: it decides when the command runs."""
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/socket")
        server.listen()
        server.settimeout(60)
        stand_in = [sys.executable, "-I", "-S", preloaded_command.__file__, f"{folder}/socket", "toolscript"]
        with subprocess.Popen(stand_in) as process:
            connection, _ = server.accept()
            process.send_signal(signal.SIGTERM)
            with connection, connection.makefile("w") as lines, subprocess.Popen(["sleep", "60"]) as running:
                lines.write(f"{running.pid}\n")
                lines.flush()
                assert running.wait() == -signal.SIGTERM
                lines.write("7\n")
            assert process.wait() == 7


def test_a_lock_that_a_test_has_left_behind_is_named(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(postgres) as other:
        other.execute("CREATE SCHEMA mcp CREATE TABLE forgotten (number integer)")
        monkeypatch.setattr(postgres_servers, "LOCK_SECONDS", 0.2)
        with other.transaction():
            other.execute("LOCK TABLE mcp.forgotten")
            with pytest.raises(TimeoutError, match=r"idle in transaction.*LOCK TABLE mcp\.forgotten"):
                empty_database(postgres)
    monkeypatch.undo()
    empty_database(postgres)
