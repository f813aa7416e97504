"""Ends a server's process together with the processes that it has started: `npx` and `uvx` start the server itself.

POSIX has process groups for that, Windows has job objects.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol


class ProcessTree(Protocol):
    """A process and all that it has started."""

    def is_running(self) -> bool:
        """Whether a process is left."""

    def terminate(self) -> None:
        """Asks the processes to end, where the system has a way to ask."""

    def kill(self) -> None:
        """Ends the processes."""


def open_tree(pid: int, *, is_supervised: bool = False) -> ProcessTree:
    """The tree of a process that has just started, on POSIX in a session of its own. A process that supervises the
    others ends them at once when it ends."""
    if sys.platform == "win32":
        return JobObject(pid)
    return SupervisedGroup(pid) if is_supervised else ProcessGroup(pid)


class ProcessGroup:
    """The processes of a group. A server's child that makes a group of its own is not one of them."""

    def __init__(self, group: int) -> None:
        self._group = group

    def is_running(self) -> bool:
        return self._signal(0)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> bool:
        """Sends a signal to the group; False if no process is left in it."""
        try:
            os.killpg(self._group, number)
        except (ProcessLookupError, PermissionError):  # macOS raises PermissionError for a zombie
            return False
        return True


class SupervisedGroup(ProcessGroup):
    """The processes of a group on Linux whose first one is bubblewrap, whose end is the end of all others: a SIGTERM
    would leave them no time."""

    def is_running(self) -> bool:
        """Whether the first process is left: the one below it waits as a zombie for the init of this machine."""
        try:
            os.kill(self._group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def terminate(self) -> None:
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            with suppress(ProcessLookupError, PermissionError):
                if pid != self._group and os.getpgid(pid) == self._group:
                    os.kill(pid, signal.SIGTERM)


class JobObject:
    """A job object of Windows, which also ends with the gateway: the system closes the handles of a process that ends,
    however it ends. Uses pywin32, which the MCP SDK requires on Windows.

    What the process starts before it is in the job is not one of its processes: some milliseconds.
    """

    def __init__(self, pid: int) -> None:
        import win32api
        import win32con
        import win32job

        self._jobs: Any = win32job
        self._job: Any = win32job.CreateJobObject(None, "")
        kind = win32job.JobObjectExtendedLimitInformation
        limits = win32job.QueryInformationJobObject(self._job, kind)
        limits["BasicLimitInformation"]["LimitFlags"] |= win32job.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
        win32job.SetInformationJobObject(self._job, kind, limits)
        with suppress(win32api.error):  # the process has ended already
            rights = win32con.PROCESS_SET_QUOTA | win32con.PROCESS_TERMINATE
            win32job.AssignProcessToJobObject(self._job, win32api.OpenProcess(rights, False, pid))

    def is_running(self) -> bool:
        kind = self._jobs.JobObjectBasicAccountingInformation
        return bool(self._jobs.QueryInformationJobObject(self._job, kind)["ActiveProcesses"])

    def terminate(self) -> None:
        """Windows has no signal that a program without a window would get: `kill` follows."""

    def kill(self) -> None:
        self._jobs.TerminateJobObject(self._job, 1)
