"""Fixtures of the tests of commands: a folder, and a running gateway."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest


@pytest.fixture
def small_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder for commands, an empty current folder beside it, and a tiny model."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TOOLSCRIPT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "data"


@pytest.fixture
def start_gateway(small_folder: Path) -> Iterator[Callable[[], None]]:
    """Starts a gateway on the data folder, with the configuration of the current folder."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(_running(small_folder, Path.cwd()))


@pytest.fixture(scope="module")
def running_gateway() -> Callable[[Path, Path], AbstractContextManager[None]]:
    """Runs a gateway on a data folder, in another folder, during the block."""
    return _running


@contextmanager
def _running(data: Path, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "toolscript", "gateway", "start", "--port", "0", "--data-dir", str(data)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOOLSCRIPT_SEARCH")}
    environment |= {"TOOLSCRIPT_SEARCH_MODEL": "hashed-64", "HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    log = data.parent / "gateway.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=folder
        ) as process,
    ):
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if "Serving http://" in line:
                break
        else:
            pytest.fail(output + log.read_text())
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait(timeout=30) == 0
