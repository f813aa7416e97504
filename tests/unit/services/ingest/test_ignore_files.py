"""Rules of ignore files mean what they mean to Git, and those of a stranger stop nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from tests.fixtures.examples import scale_examples
from toolscript.services.ingest.finder import FileFinder
from toolscript.services.ingest.ignore_files import build_spec

pytestmark = pytest.mark.req("F-01", "F-02")

NAME_SIGNS = st.sampled_from(["a", "b", "*", "*", "?", "[ab]", "[!a]", "\\*", "."])
PARTS = st.one_of(st.sampled_from(["**", "*", "a", "b"]), st.lists(NAME_SIGNS, min_size=1, max_size=6).map("".join))
RULES = st.builds(
    "{}{}{}".format, st.sampled_from(["", "!", "/"]), st.lists(PARTS, min_size=1, max_size=6).map("/".join), st.just("")
)
PATHS = st.lists(st.text("ab.*", min_size=1, max_size=6), min_size=1, max_size=7).map("/".join)


@settings(max_examples=scale_examples(400), deadline=None)
@example(rules=["a/**/*b*a*/**/b"], path="a/aa/ba/aba/b/b")
@example(rules=["**/a*b/**/a/**"], path="ab/a/ab/b/a/b")
@given(rules=st.lists(RULES, min_size=1, max_size=4), path=PATHS)
def test_rules_match_what_they_match_in_git(rules: list[str], path: str) -> None:
    for given_path in (path, f"{path}/"):
        expected = GitIgnoreSpec.from_lines(rules).check_file(given_path)
        assert build_spec(rules).check_file(given_path) == expected


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("*a" * 40 + "*b", "a" * 250),
        ("*a?[a]" * 20 + "*b", "/".join(["a" * 250] * 15)),
        ("a/**/" * 40 + "b", "a/" * 2_000 + "c"),
        ("**/*a*a/" * 40 + "**/b", "aaa/" * 1_000 + "c"),
    ],
)
def test_a_rule_of_many_wildcards_takes_no_time(rule: str, path: str) -> None:
    began = time.process_time()
    assert build_spec([rule]).check_file(path).include is None
    assert time.process_time() - began < 10  # a hundredth of it; the rule as it was takes years


def test_a_large_or_endless_ignore_file_is_reported(tmp_path: Path) -> None:
    for name in ("large", "pipe", "device"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("x")
    (tmp_path / "large" / ".gitignore").write_text("a\n" * 50_001)
    os.mkfifo(tmp_path / "pipe" / ".gitignore")
    (tmp_path / "device" / ".toolscriptignore").symlink_to("/dev/zero")
    finder = FileFinder((".md",))
    assert sorted(finder.find_files([str(tmp_path)]).values()) == ["device/a.md", "large/a.md", "pipe/a.md"]
    assert finder.unreadable == {
        str(tmp_path / "large" / ".gitignore"): "larger than 0.1 MB",
        str(tmp_path / "pipe" / ".gitignore"): "not a regular file",
        str(tmp_path / "device" / ".toolscriptignore"): "not a regular file",
    }
