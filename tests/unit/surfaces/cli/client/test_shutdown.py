"""A signal ends a gateway in time, whatever hangs, with the processes that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.fixtures.examples import choose

pytestmark = [pytest.mark.req("X-12"), pytest.mark.slow]

# The work does not end when it is cancelled, and neither does a thread; the server ignores SIGTERM.
PROGRAM = """
import asyncio, signal, subprocess, sys, threading, time
from contextlib import suppress
from toolscript.domain import limits
from toolscript.surfaces.cli.commands.gateway import run_gateway

class Run:
    def stop(self):
        print("stopping", flush=True)

    async def serve(self):
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        server = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
        print(server.pid, flush=True)
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(600)

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
limits._limits = limits.Limits(shutdown=0.5)
run_gateway(Run())
"""


@pytest.mark.parametrize("number", choose([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], signal.SIGHUP))
def test_a_signal_ends_a_gateway_in_which_everything_hangs(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        server = int(process.stdout.readline())
        try:
            process.send_signal(number)
            assert process.stdout.readline() == "stopping\n"
            assert process.wait(timeout=30) == 0
            wait_for_end(server)
        finally:
            process.kill()
            end(server)


def test_nohup_keeps_a_gateway_running() -> None:
    program = PROGRAM.replace("run_gateway(Run())", "signal.signal(signal.SIGHUP, signal.SIG_IGN); run_gateway(Run())")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        server = int(process.stdout.readline())
        try:
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readlines() == ["stopping\n"]
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
            end(server)


def wait_for_end(process: int) -> None:
    deadline = time.monotonic() + 30
    while is_running(process):
        assert time.monotonic() < deadline, "the server still runs"
        time.sleep(0.02)


def is_running(process: int) -> bool:
    """Whether the process runs. One that has ended may wait for whoever took it over."""
    state = subprocess.run(["/bin/ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return bool(state.stdout.strip()) and not state.stdout.startswith("Z")


def end(process: int) -> None:
    if is_running(process):
        os.kill(process, signal.SIGKILL)
