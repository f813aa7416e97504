"""Stops a gateway on a signal, and ends its process in time whatever hangs: everything acknowledged is in the store."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from toolscript.domain.limits import current_limits

LOG_SECONDS = 0.2

log = logging.getLogger(__name__)


def on_stop_signal(stop: Callable[[], object]) -> None:
    """Calls `stop` on SIGINT, SIGTERM and SIGHUP, and ends the process if that takes too long; must be called inside
    the running loop. Windows has no signal handlers for event loops: there Ctrl-C raises KeyboardInterrupt."""
    if sys.platform == "win32":
        return
    ending = threading.Timer(current_limits().shutdown, _end_process)
    ending.daemon = True

    def begin() -> None:
        if ending.ident is None:
            ending.start()
        stop()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, begin)
    loop.add_signal_handler(signal.SIGTERM, begin)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` ignores it
        loop.add_signal_handler(signal.SIGHUP, begin)


def _end_process() -> None:
    """Ends the servers that still run, and this process, without waiting for anything."""
    for process in _list_children():
        with suppress(OSError):
            if os.getpgid(process) == process:
                os.killpg(process, signal.SIGKILL)
            else:
                os.kill(process, signal.SIGKILL)
    about = {"reason": f"something did not end within {current_limits().shutdown:g} s, so the process ends without it"}
    # What hangs may be the log.
    writing = threading.Thread(target=log.warning, args=("stopped_late",), kwargs={"extra": about}, daemon=True)
    writing.start()
    writing.join(LOG_SECONDS)
    os._exit(0)


def _list_children() -> list[int]:
    own = os.getpid()
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        return [process for process, parent in _list_processes() if parent == own]
    return []


def _list_processes() -> Iterator[tuple[int, int]]:
    """Every process, with its parent."""
    if not Path("/proc/self/stat").exists():
        command = ["/bin/ps", "-A", "-o", "pid=,ppid="]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=1, check=True)  # noqa: S603
        for line in shown.stdout.splitlines():
            process, parent = line.split()
            yield int(process), int(parent)
        return
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            yield int(file.parent.name), int(file.read_bytes().rpartition(b") ")[2].split()[1])
