"""Small files in the data folder: replaced as a whole, for their owner alone, by any number of writers."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolscript.configuration.data_files import replace_file

pytestmark = pytest.mark.req("X-04")


def test_several_writers_at_once_replace_a_file_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "catalogue.json"
    texts = [str(number) * 10_000 for number in range(10)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: replace_file(file, texts[number % 10]), range(200)))
    assert file.read_text() in texts
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_only_the_owner_can_read_it_whatever_lay_there_before(tmp_path: Path) -> None:
    file, outside = tmp_path / "gateway.json", tmp_path / "outside"
    outside.write_text("untouched")
    file.symlink_to(outside)
    replace_file(file, "new")
    assert (file.read_text(), outside.read_text()) == ("new", "untouched")
    assert stat.S_IMODE(file.lstat().st_mode) == 0o600


def test_a_file_that_cannot_be_replaced_leaves_no_draft(tmp_path: Path) -> None:
    folder = tmp_path / "notices.json"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="notices"):
        replace_file(folder, "new")
    assert [*tmp_path.iterdir()] == [folder]
