"""Ends tests that hang, and goes on with the others.

`faulthandler_timeout` in pyproject.toml writes the stacks of all threads and ends the process, whatever a thread waits
for and whoever has Python's lock. Here is what pytest and pytest-xdist lack for it: a limit for the teardown of a test
that has failed, and a run with `-n` that does not start the same test again.
"""

from __future__ import annotations

import faulthandler
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

ONE_PROCESS = "tests/surfaces/console/"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Starts the limit again, which pytest takes back when a test fails: the teardown may wait for what is left of
    it."""
    seconds = float(item.config.getini("faulthandler_timeout"))
    ends_process = bool(item.config.getini("faulthandler_exit_on_timeout"))
    if seconds:
        faulthandler.dump_traceback_later(
            seconds, exit=ends_process, file=item.config.stash[fault_handler_stderr_fd_key]
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FileScheduling(LoadFileScheduling):  # type: ignore[misc]
        """Gives each file to one process. When a test ends the process, those that have not run go to another."""

        def _split_scope(self, nodeid: str) -> str:
            """The file of a test; for all that need a browser their folder, because a browser takes 300 MB."""
            file: str = super()._split_scope(nodeid)
            return ONE_PROCESS if file.startswith(ONE_PROCESS) else file

        def remove_node(self, node: Any) -> str | None:
            files = self.assigned_work[node]
            unfinished = [(tests, name) for tests in files.values() for name, is_done in tests.items() if not is_done]
            if unfinished:
                tests, ended_in = unfinished[0]
                tests[ended_in] = True
            # A process that is given a file without a test to run asks for no other file.
            for file in [file for file, tests in files.items() if all(tests.values())]:
                del files[file]
            super().remove_node(node)
            return ended_in if unfinished else None

    return FileScheduling(config, log)
