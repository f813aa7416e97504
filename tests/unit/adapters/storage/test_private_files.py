"""Everything in a data folder is for its owner alone, whatever the umask and the folders were."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolscript.adapters.observability.event_sinks import open_jsonl_sink
from toolscript.adapters.storage.private_files import make_private_folder, restrict, restrict_tree
from toolscript.app.app import open_app
from toolscript.configuration.files import Configuration
from toolscript.domain.catalog import Item
from toolscript.domain.documents import Document
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.announcement import announce_gateway
from toolscript.surfaces.cli.client.catalogue import CatalogueChoice, CatalogueRecord, write_record

pytestmark = [pytest.mark.req("X-04"), pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")]


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def find_open_paths(folder: Path) -> dict[str, str]:
    """What other users have access to in the folder, with its mode. The next file of Qdrant's log is left out: a thread
    of its own creates it at any time, in a folder that is closed to others."""
    paths = [path for path in folder.rglob("*") if not (path.parent.name == "wal" and path.name.startswith("open-"))]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *paths)}
    return {str(path.relative_to(folder)): oct(mode) for path, mode in modes.items() if mode & 0o077}


async def fill(settings: Settings) -> None:
    choice = CatalogueChoice(settings, Path.cwd(), Configuration((), ()), is_demo=False, record=CatalogueRecord())
    async with open_app(settings) as app:
        await app.catalogue.sync.run([Item("git", "log", "Shows commits.")])
        await app.texts.ingest_documents.put("acme", [Document("a", "The lease ends in May.")])
        with announce_gateway(settings, "http://127.0.0.1:1"):
            write_record(choice, {})
            assert find_open_paths(settings.data) == {}


async def test_files_and_folders_are_created_for_the_owner_alone(small: Settings) -> None:
    small.data.mkdir(0o777)
    await fill(small)
    assert find_open_paths(small.data) == {}
    assert (small.data / "cache" / "embeddings").is_dir()


@pytest.mark.slow
async def test_an_existing_data_folder_is_closed_to_others_when_it_is_opened(small: Settings) -> None:
    await fill(small)
    for path in (small.data, *small.data.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    await fill(small)


async def test_the_query_log_is_for_its_owner_and_the_folder_above_stays_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(0o755)
    for path in (shared / "events.jsonl", shared / "new" / "deeper" / "events.jsonl"):
        sink = open_jsonl_sink(path)
        sink.record({"type": "test"})
        await sink.close()
    assert find_open_paths(shared) == {".": "0o755"}


def test_what_links_lead_to_stays_as_it_is_except_the_folder_that_the_user_named(tmp_path: Path) -> None:
    outside, folder, named = (tmp_path / name for name in ("outside", "folder", "named"))
    for each in (outside, folder):
        each.mkdir(0o755)
    tool = outside / "tool.sh"
    tool.touch(0o755)
    for link, target in (("file", tool), ("inner", outside), ("gone", tmp_path / "absent")):
        (folder / link).symlink_to(target)
    restrict_tree(folder)
    make_private_folder(folder / "inner")
    assert find_open_paths(outside) == {".": "0o755", "tool.sh": "0o755"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    named.symlink_to(outside)
    make_private_folder(named, follow_link=True)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700


def test_a_folder_for_everybody_stays_as_it_is(tmp_path: Path) -> None:
    everybody = tmp_path / "tmp"
    everybody.mkdir()
    everybody.chmod(0o1777)
    make_private_folder(everybody)
    assert not restrict(tmp_path / "absent")
    assert stat.S_IMODE(everybody.stat().st_mode) == 0o1777
