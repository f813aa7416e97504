"""`toolscript mcp` as a process: what it answers and leaves, whenever something ends or begins."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec
from tests.servers.preloaded import toolscript_command

pytestmark = [pytest.mark.slow, pytest.mark.req("A-06", "G-08")]

TIMEOUT_SECONDS = 120.0
# Takes as long as for users, and nothing stands for the process.
UNPREPARED = (sys.executable, "-m", "toolscript")
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
CALL = {"name": "call_tool", "arguments": {"tool_id": "good__echo", "arguments": {"text": "again"}}}
ECHOED = '{"text": "again"}'
PID = {"name": "call_tool", "arguments": {"tool_id": "good__pid"}}
SEARCH = {"name": "search_tools", "arguments": {"query": "good__echo"}}


def encode(number: int | None, method: str, params: dict[str, Any] | None = None) -> bytes:
    message = {"jsonrpc": "2.0", "method": method} | ({} if number is None else {"id": number})
    return json.dumps(message | ({} if params is None else {"params": params})).encode() + b"\n"


SCRIPT = [
    encode(1, "initialize", INITIALIZE),
    encode(None, "notifications/initialized"),
    encode(2, "tools/list"),
    encode(3, "prompts/list"),
    encode(4, "tools/call", SEARCH),
    encode(5, "tools/call", CALL),
]


class Pipe(subprocess.Popen[bytes]):
    """A pipe, with the answers that were read from it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.answers: dict[int, dict[str, Any]] = {}
        super().__init__(*args, **kwargs)


class Home:
    """A home folder with one server, in which clients start pipes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.configuration = folder / "servers.json"
        self.configuration.write_text(json.dumps({"mcpServers": {"good": make_scripted_spec(tools=["echo", "pid"])}}))

    @contextmanager
    def start(self, *options: str, command: Sequence[str] | None = None) -> Iterator[Pipe]:
        """A pipe, which is killed at the end of the block if it has not ended."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TOOLSCRIPT_SEARCH")}
        environment |= {"TOOLSCRIPT_SEARCH_MODEL": "hashed-64", "HOME": str(self.folder)}
        place = ["--config", str(self.configuration), "--data-dir", str(self.data)]
        with Pipe(
            [*(command or toolscript_command()), "mcp", *place, "--linger", "0", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    for pid in (left := find_lingering(home)):
        os.kill(pid, signal.SIGTERM)
    wait_for_end(left)


def send(process: Pipe, *lines: bytes) -> None:
    assert process.stdin
    process.stdin.write(b"".join(lines))
    process.stdin.flush()


def receive(process: Pipe, number: int) -> dict[str, Any]:
    """The answer to a request. Answers come in any order."""
    assert process.stdout
    while number not in process.answers:
        line = process.stdout.readline()
        if not line:
            pytest.fail(read_errors(process))
        message: dict[str, Any] = json.loads(line)
        if "id" in message and "method" not in message:
            assert message["id"] not in process.answers
            process.answers[message["id"]] = message
    return process.answers[number]


def read_errors(process: Pipe) -> str:
    assert process.stderr
    return process.stderr.read().decode()


def read_text(answer: dict[str, Any]) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


def read_gateway(home: Home) -> int:
    pid: int = json.loads((home.data / "gateway.json").read_text())["pid"]
    return pid


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for_end(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def find_lingering(home: Home) -> list[int]:
    """Processes of the data folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        is_ours = str(home.data) in " ".join(process.info["cmdline"] or [])
        if is_ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


@pytest.mark.req("X-05")
def test_a_client_that_sends_everything_at_once_and_closes_gets_every_answer_once(home: Home) -> None:
    with home.start() as process:
        output, errors = process.communicate(b"".join(SCRIPT), timeout=TIMEOUT_SECONDS)
    messages = [json.loads(line) for line in output.splitlines()]
    answers = {m["id"]: m for m in messages if "method" not in m}
    assert sorted(m["id"] for m in messages if "method" not in m) == [1, 2, 3, 4, 5], errors.decode()
    assert read_text(answers[4]).startswith("good__echo  ")
    assert read_text(answers[5]) == ECHOED
    assert process.returncode == 0
    wait_for_end(find_lingering(home))


@pytest.mark.req("X-05")
def test_clients_that_start_in_the_same_moment_share_one_gateway(home: Home) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(home.start()) for _ in range(3)]
        for process in processes:
            send(
                process,
                *SCRIPT[:2],
                encode(5, "tools/call", {"name": "call_tool", "arguments": {"tool_id": "good__pid"}}),
            )
        servers = {json.loads(read_text(receive(process, 5)))["pid"] for process in processes}
        assert len(servers) == 1
        gateway = read_gateway(home)
        for process in processes:
            assert process.stdin
            process.stdin.close()
            assert process.wait(TIMEOUT_SECONDS) == 0
        wait_for_end([gateway, *servers])
    assert not (home.data / "gateway.sock").exists()
    wait_for_end(find_lingering(home))  # a gateway that came second finds the folder locked, and ends


@pytest.mark.req("X-05", "X-07")
@pytest.mark.parametrize("tenths", choose(range(0, 40, 4), 4))
def test_a_gateway_that_is_killed_while_it_starts_costs_no_message(home: Home, tenths: int) -> None:
    with home.start(command=UNPREPARED) as process:
        send(process, *SCRIPT)
        assert receive(process, 2)["result"]["tools"]
        while not (gateways := [pid for pid in find_lingering(home) if pid != process.pid]):
            time.sleep(0.01)
        time.sleep(tenths / 10)
        for gateway in gateways:
            if is_running(gateway):
                os.kill(gateway, signal.SIGKILL)
        assert read_text(receive(process, 4)).startswith("good__echo  ")
        text = read_text(receive(process, 5))
        assert text == ECHOED or "it is unknown whether it was carried out" in text


def test_a_profile_that_does_not_exist_is_refused_with_those_that_do(home: Home) -> None:
    file = home.configuration
    profiles = {"reader": {"readOnly": True}, "writer": {}}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"profiles": profiles}))
    with home.start("--profile", "nope") as process:
        send(process, SCRIPT[0])
        assert process.wait(TIMEOUT_SECONDS) == 2
        errors = read_errors(process)
        assert "no such profile: 'nope'" in errors
        assert "There are: default, reader, writer" in errors


@pytest.mark.extended
@pytest.mark.req("X-03")
def test_another_configuration_file_than_that_of_the_gateway_is_refused(home: Home) -> None:
    other = home.folder / "other.json"
    other.write_text('{"mcpServers": {}}')
    with home.start() as first:
        send(first, *SCRIPT)
        receive(first, 4)
        with home.start("--config", str(other)) as second:
            send(second, SCRIPT[0])
            assert second.wait(TIMEOUT_SECONDS) == 2
            assert f"reads {home.configuration}, not {other}" in read_errors(second)


def test_a_gateway_that_cannot_start_is_explained_and_started_again_when_the_file_is_repaired(home: Home) -> None:
    valid = home.configuration.read_text()
    home.configuration.write_text('{"mcpServers": {"good": {"comand": "x"}}}')
    with home.start() as process:
        send(process, *SCRIPT[:5])
        assert 'comand: unknown key, did you mean "command"?' in read_text(receive(process, 4))
        home.configuration.write_text(valid)
        send(process, encode(7, "tools/call", CALL))
        assert read_text(receive(process, 7)) == ECHOED


@pytest.mark.req("X-04")
def test_only_the_owner_can_open_what_a_pipe_and_its_gateway_create(home: Home) -> None:
    with home.start() as process:
        send(process, *SCRIPT)
        receive(process, 5)
        paths = [path for path in home.data.rglob("*") if path.name.startswith(("gateway", "early"))]
        assert {"gateway.sock", "gateway.lock", "gateway.log"} <= {path.name for path in paths}
        assert [path for path in [home.data, *paths] if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


@pytest.mark.extended
@pytest.mark.req("X-05")
def test_a_data_folder_with_a_long_path_has_its_socket_elsewhere(home: Home) -> None:
    home.data = home.folder / ("long" * 30)
    with home.start() as process:
        send(process, *SCRIPT)
        assert read_text(receive(process, 5)) == ECHOED
        place = (home.data / "gateway.sock").readlink().parent
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        gateway = read_gateway(home)
    wait_for_end([gateway])
    assert not place.exists()
    assert not (home.data / "gateway.sock").is_symlink()


@pytest.mark.extended
def test_a_pipe_takes_little_memory_and_answers_at_once(home: Home) -> None:
    with home.start(command=UNPREPARED) as process:
        send(process, *SCRIPT)
        receive(process, 5)
        assert psutil.Process(process.pid).memory_info().rss < 15e6
        began = time.monotonic()
        with home.start(command=UNPREPARED) as second:
            send(second, SCRIPT[0])
            receive(second, 1)
        assert time.monotonic() - began < 5.0  # 0.06 s are needed
