"""The servers that other tests use behave as scripted, also when they misbehave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fixtures.examples import choose
from tests.servers import make_scripted_spec, preloaded_command
from tests.servers import postgres as postgres_servers
from tests.servers.postgres import connect, empty_database
from tests.servers.preloaded import VARIABLE, run_preloaded, toolscript_command
from tests.servers.real import QUICK, harmless_calls, real_servers
from tests.servers.scripted import BUILT_IN, CRASHED, SLOPPY
from tests.servers.talk import Conversation
from toolscript import __version__

pytestmark = pytest.mark.slow


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


def test_real_servers_are_installed_and_each_has_a_harmless_call(tmp_path: Path) -> None:
    servers = real_servers(tmp_path)
    assert len(servers) >= 11
    assert servers.keys() == harmless_calls(tmp_path).keys() > set(QUICK)
    for entry in servers.values():
        assert Path(entry["command"]).is_file()
        assert Path(entry["cwd"]).is_dir()
    assert real_servers(tmp_path) == servers, "a second time changes nothing"


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
