"""The product, as a user starts it, reaches no other machine and leaves nothing of its dependencies in the home folder.

The environment is empty: libraries send nothing where a variable says that tests or a CI service run them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import httpx
import pytest

from tests.fixtures.book_files import Typed, pdf
from tests.fixtures.http_services import Hub, hub_layout
from tests.servers import connection_recorder
from tests.servers.gateway_process import STOP_SECONDS, TIMEOUT_SECONDS, wait_until
from tests.servers.processes import find_free_port

pytestmark = pytest.mark.req("X-09")

# What finds the code, and nothing else.
KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR")
TOOLSCRIPT = (sys.executable, "-m", "toolscript")
# Other programs on the machine may need these; Toolscript has settings of its own for its traces.
VARIABLES_OF_OTHERS = {
    "FASTAPI_OTEL_AUTO_CONFIGURE": "true",
    "LOGFIRE_TOKEN": "pylf_v1_us_0123456789",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://192.0.2.9:4318",
}
NATIVE_ATTEMPT = """
import ctypes, socket, struct, subprocess, sys
if sys.argv[1:]:
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", 443, socket.inet_aton("192.0.2.1"))
    tcp = socket.socket()
    ctypes.CDLL(None).connect(tcp.fileno(), address, len(address))
    for send in ("sendto(b'', ('192.0.2.2', 9))", "sendmsg([b''], [], 0, ('192.0.2.3', 9))"):
        try:
            eval(f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).{send}")
        except OSError:
            pass
    try:
        socket.getaddrinfo("toolscript.invalid", 443)
    except OSError:
        pass
else:
    subprocess.run([sys.executable, "-c", sys.orig_argv[2], "child"], check=True)
"""


@dataclass(frozen=True)
class Machine:
    """A home folder and a working folder, both empty at first, and a record of attempts to connect."""

    folder: Path

    @cached_property
    def home(self) -> Path:
        return self._make("home")

    @cached_property
    def work(self) -> Path:
        return self._make("work")

    @property
    def attempts(self) -> list[str]:
        return (self.folder / "attempts").read_text(encoding="utf-8").splitlines()

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text(encoding="utf-8")

    def _make(self, name: str) -> Path:
        (made := self.folder / name).mkdir()
        return made

    @contextmanager
    def start(self, command: Sequence[str], variables: Mapping[str, str] = {}) -> Iterator[subprocess.Popen[bytes]]:
        """Runs the command until the block ends. Skips the test where connections cannot be recorded."""
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        with (
            (self.folder / "output").open("wb") as output,
            subprocess.Popen(
                [sys.executable, "-I", connection_recorder.__file__, str(self.folder / "attempts"), *command],
                env={**kept, "HOME": str(self.home), **variables},
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def run(self, command: Sequence[str], variables: Mapping[str, str] = {}) -> None:
        """Runs the command to its end, which must be a good one."""
        with self.start(command, variables) as process:
            process.wait(TIMEOUT_SECONDS)
        skip_if_not_recorded(process, self.output)
        assert process.returncode == 0, self.output

    def check_that_nothing_was_sent(self) -> None:
        assert self.attempts == []
        assert [each.name for each in self.home.iterdir()] == [".toolscript"]
        assert list(self.work.iterdir()) == []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def skip_if_not_recorded(process: subprocess.Popen[bytes], output: str) -> None:
    if process.returncode == connection_recorder.CANNOT_RECORD:
        pytest.skip(output.strip())


def test_the_recorder_notices_native_code_of_child_processes(machine: Machine) -> None:
    """Otherwise the other tests would pass whatever the product did."""
    machine.run([sys.executable, "-c", NATIVE_ATTEMPT])
    destinations = [line.rpartition(": ")[2] for line in machine.attempts]
    assert destinations[:3] == ["192.0.2.1 port 443", "192.0.2.2 port 9", "192.0.2.3 port 9"]
    assert {each.rpartition(" ")[2] for each in destinations[3:]} == {"53"}


@pytest.mark.extended
def test_a_search_of_the_demo_sends_nothing(machine: Machine) -> None:
    machine.run([*TOOLSCRIPT, "search", "put my changes into version control"])
    assert "git__git_commit" in machine.output
    machine.check_that_nothing_was_sent()


@pytest.mark.extended
def test_ingesting_files_sends_nothing(machine: Machine) -> None:
    """Each kind of file has a library of its own, in a worker process."""
    (files := machine.folder / "files").mkdir()
    (files / "handbook.pdf").write_bytes(pdf([[Typed(60, 780, "Keys are rotated every month.")]]))
    (files / "rotation.py").write_text('def rotate():\n    """Replaces the keys of last month."""\n', encoding="utf-8")
    (files / "notes.md").write_text("# Notes\n\nKeys live in the vault.\n", encoding="utf-8")
    machine.run([*TOOLSCRIPT, "ingest", str(files), "--as", "knowledge"])
    machine.run([*TOOLSCRIPT, "knowledge", "search", "how are keys rotated"])
    assert "handbook" in machine.output
    machine.check_that_nothing_was_sent()


def test_a_gateway_that_searches_and_runs_programs_sends_nothing(machine: Machine) -> None:
    port = find_free_port()
    command = [*TOOLSCRIPT, "gateway", "start", "--port", str(port)]
    with (
        machine.start(command, {**VARIABLES_OF_OTHERS, "TOOLSCRIPT_CODE": "python,typescript"}) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_SECONDS) as http,
    ):

        def is_ready() -> bool:
            skip_if_not_recorded(process, machine.output)
            assert process.poll() is None, machine.output
            try:
                return http.get("/ready").status_code == httpx.codes.OK
            except httpx.TransportError:
                return False

        wait_until(is_ready)
        assert http.get("/search", params={"q": "put my changes into version control"}).json()["results"]
        for language, program in (("python", "1 + 1"), ("typescript", "return 1 + 1")):
            answer = http.post("/api/v1/run", json={"language": language, "code": program}).json()
            assert answer["value"] == 2, answer
        process.terminate()
        assert process.wait(STOP_SECONDS) == 0, machine.output
    machine.check_that_nothing_was_sent()


@pytest.mark.extended
def test_a_download_asks_the_configured_hub_and_no_other(machine: Machine) -> None:
    """The library of the hub also asks the public hub for a list of programs that may have started it."""
    with Hub("someone/their-model", hub_layout(machine.folder / "repository")) as hub:
        variables = {"TOOLSCRIPT_HUB_URL": hub.root, "TOOLSCRIPT_SEARCH_MODEL": "someone/their-model"}
        machine.run([*TOOLSCRIPT, "search", "put my changes into version control"], variables)
    assert (machine.home / ".toolscript" / "models" / "someone--their-model").is_dir()
    assert machine.attempts == []
