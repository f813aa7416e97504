"""What makes tests of commands quick: the demo, synced once, and files that are read without a process for each."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path

import pytest

from tests.surfaces.cli.data_folders import copy_data
from toolscript.adapters.files.reader import FileBooks
from toolscript.app.app import open_app
from toolscript.app.files import MAX_IN_PROCESS_BYTES
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import load_settings


@pytest.fixture(scope="session")
def synced_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the tools of the demo. Tests must not change it."""
    data = tmp_path_factory.mktemp("demo") / "data"

    async def sync() -> None:
        async with open_app(load_settings(data_dir=data, search_model="hashed-64", variables={}), demo=True) as app:
            await app.catalogue.sync.run(load_demo_items())

    asyncio.run(sync())
    return data


@pytest.fixture
def demo_folder(synced_demo: Path, small_folder: Path) -> Path:
    """The data folder of `small_folder`, with the tools of the demo in it."""
    copy_data(synced_demo, small_folder)
    return small_folder


@pytest.fixture
def small_texts_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small texts become knowledge without a worker process for each, which takes 0.2 s; documents are always read so.

    Other files, and whatever a gateway reads, still take one.
    """
    read_here = functools.partial(FileBooks, max_in_process_bytes=MAX_IN_PROCESS_BYTES)
    monkeypatch.setattr("toolscript.adapters.files.reader.FileBooks", read_here)
