"""Runs `toolscript gateway start` for tests in a process of its own, which a test may edit, signal and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.servers.preloaded import toolscript_command
from tests.servers.processes import find_free_port

TIMEOUT_SECONDS = 90.0
STOP_SECONDS = 40.0


def wait_until(holds: Callable[[], bool], within: float = TIMEOUT_SECONDS) -> None:
    """Waits for a condition in another process."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.05)


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@dataclass
class Gateway:
    """A gateway in a process of its own."""

    process: subprocess.Popen[bytes]
    http: httpx.Client
    folder: Path
    started_at: float
    seen: dict[int, psutil.Process] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """The id of its process: `process` stands for it when the command is preloaded."""
        file = self.folder / "pid"
        return int(file.read_text()) if file.exists() else self.process.pid

    @property
    def config(self) -> Path:
        return self.folder / "servers.json"

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    def write(self, servers: Mapping[str, Any]) -> None:
        """Replaces the configuration, as an editor would."""
        new = self.config.with_suffix(".new")
        new.write_text(json.dumps({"mcpServers": servers}))
        new.replace(self.config)

    def get(self, path: str) -> httpx.Response | None:
        """The response, or None while the port is closed. Records the child processes so far."""
        self.record_children()
        try:
            return self.http.get(path)
        except httpx.TransportError:
            assert self.process.poll() is None, self.output
            return None

    def record_children(self) -> None:
        with suppress(psutil.NoSuchProcess):
            self.seen |= {p.pid: p for p in psutil.Process(self.pid).children(recursive=True)}

    def answers(self, path: str) -> bool:
        answer = self.get(path)
        return answer is not None and answer.status_code == 200

    def is_ready(self) -> bool:
        return self.answers("/ready")

    def servers(self) -> dict[str, dict[str, Any]]:
        return {s["name"]: s for s in self.http.get("/servers").json()["servers"]}

    def states(self) -> dict[str, str]:
        return {name: server["state"] for name, server in self.servers().items()}

    def call(self, tool: str, **arguments: Any) -> Any:
        answer = self.http.post(f"/tools/{tool}", json=arguments)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stops the gateway, and waits until all its child processes have ended. Returns the exit code."""
        self.record_children()
        if self.process.poll() is None:
            os.kill(self.pid, number)
        code = self.process.wait(timeout=STOP_SECONDS)
        wait_until(lambda: not self.find_survivors(), STOP_SECONDS)
        return code

    def find_survivors(self) -> list[psutil.Process]:
        return [p for p in self.seen.values() if is_alive(p)]


@contextmanager
def start_gateway(folder: Path, servers: Mapping[str, Any] | Path, **variables: str) -> Iterator[Gateway]:
    """A gateway on a free port, with these servers, or with a file that several gateways share. All its processes are
    killed at the end."""
    config = servers if isinstance(servers, Path) else folder / "servers.json"
    folder.mkdir(parents=True, exist_ok=True)
    port = find_free_port()
    chosen = {"TOOLSCRIPT_SEARCH_MODEL": "hashed-64", "TOOLSCRIPT_DATA_DIR": str(folder / "data"), "HOME": str(folder)}
    chosen["TOOLSCRIPT_TEST_PID_FILE"] = str(folder / "pid")
    own = {k: v for k, v in os.environ.items() if not k.startswith("TOOLSCRIPT_")}
    command = [*toolscript_command(), "gateway", "start", "--port", str(port)]
    with (
        (folder / "output").open("wb") as output,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
    ):
        if servers is not config:
            config.write_text(json.dumps({"mcpServers": servers}))
        (folder / "pid").unlink(missing_ok=True)
        started_at = time.monotonic()
        process = subprocess.Popen(
            [*command, "--config", str(config)],
            stdout=output,
            stderr=output,
            env=own | chosen | variables,
            cwd=folder,
        )
        gateway = Gateway(process, http, folder, started_at)
        try:
            yield gateway
        finally:
            gateway.record_children()
            if process.poll() is None:
                os.kill(gateway.pid, signal.SIGKILL)
            process.wait()
            for survivor in gateway.find_survivors():
                with suppress(psutil.NoSuchProcess):
                    survivor.kill()
