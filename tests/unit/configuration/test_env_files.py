"""A file `.env` in the current folder has settings, which never replace those of the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolscript.configuration.env_files import add_settings

pytestmark = pytest.mark.req("K-05", "X-04")


def read(folder: Path, content: bytes, **environment: str) -> dict[str, str]:
    (folder / ".env").write_bytes(content)
    add_settings(str(folder / ".env"), environment)
    return environment


def test_settings_are_added_and_other_variables_are_not(tmp_path: Path) -> None:
    content = (
        b"# ours\r\nexport TOOLSCRIPT_PORT='4000' # free\r\nPATH=/evil\r\nLD_PRELOAD=x\r\n\r\nTOOLSCRIPT_HOST=::1\r\n"
    )
    assert read(tmp_path, content) == {"TOOLSCRIPT_PORT": "4000", "TOOLSCRIPT_HOST": "::1"}


@pytest.mark.parametrize("own", ["5000", ""])
def test_a_variable_of_the_environment_stays(tmp_path: Path, own: str) -> None:
    assert read(tmp_path, b"TOOLSCRIPT_PORT=4000\n", TOOLSCRIPT_PORT=own) == {"TOOLSCRIPT_PORT": own}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"TOOLSCRIPT_PORT", b"TOOLSCRIPT_PORT=\0"], ids=repr)
def test_what_is_no_setting_is_ignored(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content) == {}


def test_a_file_that_cannot_be_read_has_no_settings(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    for path in (tmp_path, tmp_path / "missing"):
        add_settings(str(path), environment)
    assert environment == {}


@pytest.mark.slow
def test_a_command_reads_the_file_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TOOLSCRIPT_SEARCH_LIMIT=many\n")
    command = [sys.executable, "-m", "toolscript", "knowledge", "list", "--data-dir", str(tmp_path / "data")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLSCRIPT_")}

    def run(**variables: str) -> tuple[int, str]:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment | variables, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    code, errors = run()
    assert (code, "TOOLSCRIPT_SEARCH_LIMIT" in errors) == (2, True), errors
    assert run(TOOLSCRIPT_SEARCH_LIMIT="4")[0] == 0
