"""Rules that no linter knows: what the lock files and the committed text may hold."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _lock(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    pins = (re.match(r"([\w.\-]+)(?:\[[\w,]+\])?==(\S+)", line) for line in lines)
    return {m[1].lower().replace("_", "-"): m[2] for m in pins if m}


def test_lock_files_carry_no_address() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text(encoding="utf-8"), lock.name


def test_what_runs_and_what_is_tested_are_the_same_versions() -> None:
    run, dev = _lock("run.txt"), _lock("dev.txt")
    assert {name: dev.get(name) for name in run} == run


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {*project["dependencies"], *extras["server"]}
    names = {re.split(r"[\[<>=;! ]", each)[0].lower() for each in wanted}
    assert names - _lock("run.txt").keys() == set()


def test_no_two_migrations_have_the_same_number() -> None:
    """Two changes that were made at the same time may take the same number, which git merges without a conflict."""
    for folder in (ROOT / "src/toolscript/adapters/sql").glob("*migrations"):
        numbers = sorted(int(file.name[:4]) for file in folder.glob("*.sql"))
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), folder.name


@pytest.mark.req("X-01")
def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("run", "test"):
        assert f"make {target}" in readme
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.slow
def test_committed_text_holds_no_path_of_one_machine() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    found = subprocess.run(
        ["git", "grep", "-nIE", r"(^|[^A-Za-z0-9_.])/(work|farm|root)/", "--", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    own = [line for line in found.stdout.splitlines() if "test_house_rules.py" not in line]
    assert own == []
