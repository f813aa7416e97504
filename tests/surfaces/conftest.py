"""Fixtures of the tests of commands: a folder, and a running gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.limits import set_limits
from tests.servers.gateway import run_gateway


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

        def start() -> None:
            stack.enter_context(run_gateway(Path.cwd(), "--data-dir", str(small_folder)))

        yield start


@pytest.fixture
def read_keys_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of waiting until the keys that were read are too old."""
    set_limits(monkeypatch, keys_max_age=0.0)
