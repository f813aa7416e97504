"""A skill is a group of tools; a folder with a `SKILL.md` is an agent skill, in every text."""

from __future__ import annotations

import re

import pytest

from docs.generate import ROOT

GUIDES = ROOT / "docs" / "guide"
# "A skill is a folder with a SKILL.md", "skills with their SKILL.md": an agent skill without its name.
CONFUSED = re.compile(r"(?<!agent )(?<!agent_)(?<!Agent )\bskills?\b(?!/)[^.;:|=]{0,30}SKILL\.md")


@pytest.mark.req("A-03")
def test_the_glossary_and_the_first_lines_of_the_guides_say_which_is_which() -> None:
    glossary = (GUIDES / "glossary.md").read_text(encoding="utf-8")
    assert "| agent skill | a folder with a `SKILL.md`" in glossary
    assert "| skill | a group of tools" in glossary
    for name in ("agent-skills.md", "skills.md"):
        first = (GUIDES / name).read_text(encoding="utf-8").splitlines()[2]
        assert "`SKILL.md`" in first
        assert "roup of tools" in first
        assert "gent skill" in first


@pytest.mark.req("A-03")
def test_no_text_calls_a_folder_with_a_main_file_a_plain_skill() -> None:
    files = [*GUIDES.glob("*.md"), *(ROOT / "src").rglob("*.py")]
    found = {file.name: match[0] for file in files for match in CONFUSED.finditer(file.read_text(encoding="utf-8"))}
    found.pop("glossary.md", None)  # it says what a skill is not
    assert found == {}
