"""Asks the process of `tests.servers.preloaded` to run a command, and stands for it.

`python -I -S preloaded_command.py SOCKET MODULE ARGUMENT...` gives its streams, folder and environment to the command,
passes signals on to it, and ends as it ends. The id of the command's process is written to the file that the variable
TOOLSCRIPT_TEST_PID_FILE names, when it is set. It uses the standard library alone, and starts in 30 ms.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    _, address, module, *arguments = sys.argv
    signals = _PassedOn()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"\0"], [0, 1, 2])
        with connection.makefile("rw") as lines:
            request = {"module": module, "arguments": arguments, "folder": os.getcwd()}  # noqa: PTH109
            request["command"] = sys.orig_argv[1:]
            lines.write(json.dumps(request | {"environment": dict(os.environ)}) + "\n")
            lines.flush()
            pid = int(lines.readline())
            if file := os.environ.get("TOOLSCRIPT_TEST_PID_FILE"):
                with open(f"{file}.new", "w", encoding="ascii") as opened:  # noqa: PTH123, pathlib takes 10 ms to import
                    opened.write(str(pid))
                os.replace(f"{file}.new", file)  # noqa: PTH105
            signals.pass_to(pid)
            _release_streams()
            code = int(lines.readline())
    for number in SIGNALS:  # those that come too late for the command must not decide how this ends
        signal.signal(number, signal.SIG_IGN)
    if code < 0:
        if -code != signal.SIGKILL:  # which has no handler to reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


class _PassedOn:
    """Signals for the command. Those that come before it runs are passed on when it does."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._early: list[int] = []
        for number in SIGNALS:
            signal.signal(number, lambda received, _: self._receive(received))

    def pass_to(self, pid: int) -> None:
        self._pid = pid
        while self._early:
            self._receive(self._early.pop(0))

    def _receive(self, number: int) -> None:
        if self._pid is None:
            self._early.append(number)
            return
        try:
            os.kill(self._pid, number)
        except ProcessLookupError:  # it has ended
            return


def _release_streams() -> None:
    """Readers see the end of the output when the command closes it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)


if __name__ == "__main__":
    main()
