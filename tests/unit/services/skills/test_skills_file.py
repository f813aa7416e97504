"""The packaged skills, and a file that adds to them or replaces them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from toolscript.domain.catalog import Skill, compute_skills_digest
from toolscript.domain.errors import Invalid
from toolscript.services.skills.skills import check_skill
from toolscript.services.skills.skills_file import load_skills

pytestmark = pytest.mark.req("H-09")

OWN = """
[[skill]]
id = "pottery"
name = "Pottery"
description = "Clay and kilns"
keywords = ["clay", "kiln"]
examples = ["fire_kiln"]
parent_domain = "crafts"
"""
POTTERY = Skill("pottery", "Pottery", "Clay and kilns", "crafts", ("clay", "kiln"), ("fire_kiln",))


def write_file(folder: Path, text: str, name: str = "skills.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_the_packaged_skills_are_a_useful_set() -> None:
    skills = load_skills()
    assert 25 <= len(skills) <= 40
    assert len({s.id for s in skills}) == len({s.name for s in skills}) == len(skills)
    for skill in skills:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", skill.id)
        assert skill.name.strip()
        assert len(skill.description) > 40
        assert skill.parent_domain
        assert len(skill.keywords) >= 5
        assert len(skill.examples) >= 4
        assert len(set(skill.keywords)) == len(skill.keywords)
        assert len(set(skill.examples)) == len(skill.examples)
        assert skill.is_active
        assert check_skill(skill) == skill


def test_a_file_adds_to_the_packaged_skills(tmp_path: Path) -> None:
    assert load_skills(write_file(tmp_path, OWN)) == [*load_skills(), POTTERY]


def test_a_file_may_replace_the_packaged_skills(tmp_path: Path) -> None:
    assert load_skills(write_file(tmp_path, f"replace = true\n{OWN}")) == [POTTERY]
    assert load_skills(write_file(tmp_path, "replace = true")) == []


def test_a_skill_with_a_packaged_id_replaces_that_skill(tmp_path: Path) -> None:
    packaged = load_skills()
    skills = load_skills(write_file(tmp_path, '[[skill]]\nid = "email"\nname = "Post"\n'))
    assert [s.id for s in skills] == [s.id for s in packaged]
    assert next(s for s in skills if s.id == "email") == Skill("email", "Post")
    assert [s for s in skills if s.id != "email"] == [s for s in packaged if s.id != "email"]


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    for text in ("", "# nothing yet", "replace = false", "skill = []"):
        assert load_skills(write_file(tmp_path, text)) == load_skills()


def test_json_and_toml_give_the_same_skills(tmp_path: Path) -> None:
    rows = [{"id": "pottery", "name": " Pottery ", "keywords": ["clay"]}]
    file = write_file(tmp_path, json.dumps({"replace": True, "skill": rows}), "skills.json")
    assert load_skills(file) == [Skill("pottery", "Pottery", keywords=("clay",))]


def test_a_path_may_start_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_file(tmp_path, f"replace = true\n{OWN}")
    assert load_skills(Path("~/skills.toml")) == [POTTERY]


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("replace = 1", "replace must be true or false"),
        ('replace = "yes"', "replace must be true or false"),
        ("skills = []", 'skills is an unknown key: use replace, skill; did you mean "skill"?'),
        ('[[skill]]\nid = "a"\nkeyword = []', "skill a, keyword is an unknown key: use id, name, description"),
        ('skill = "email"', "skill must be a list of tables: write [[skill]]"),
        ('[skill]\nid = "a"\nname = "A"', "skill must be a list of tables: write [[skill]]"),
        ('skill = ["email"]', "skill 1 must be a table"),
        ('[[skill]]\nid = "a"\nname = "A"\n[[skill]]\nname = "B"', "skill 2 has no id"),
        ('[[skill]]\nid = "a"', "skill a has no name"),
        ('[[skill]]\nid = 5\nname = "A"', "skill 1, id must be a string"),
        ('[[skill]]\nid = "a"\nname = 5', "skill a, name must be a string"),
        ('[[skill]]\nid = "a"\nname = "A"\nparent_domain = []', "skill a, parent_domain must be a string"),
        ('[[skill]]\nid = "a"\nname = "A"\nkeywords = "clay"', "skill a, keywords must be a list of strings"),
        ('[[skill]]\nid = "a"\nname = "A"\nexamples = [1]', "skill a, examples must be a list of strings"),
        ('[[skill]]\nid = "a"\nname = "A"\ncolour = "red"', "skill a, colour is an unknown key: use id, name"),
        ('[[skill]]\nid = "a"\nname = "A"\nis_active = true', "skill a, is_active is an unknown key"),
        ('[[skill]]\nid = "A-b"\nname = "A"', "skill A-b: invalid skill id 'A-b'"),
        ('[[skill]]\nid = "suggestions"\nname = "A"', "skill suggestions: invalid skill id 'suggestions'"),
        ('[[skill]]\nid = "a"\nname = " "', "skill a: name is blank"),
        ('[[skill]]\nid = "a"\nname = "A"\nkeywords = ["fine", ""]', "skill a: keywords[1] is blank"),
        ('[[skill]]\nid = "a"\nname = "A"\n[[skill]]\nid = "a"\nname = "B"', "skill a is defined twice"),
    ],
)
def test_an_invalid_file_is_refused_naming_the_key(tmp_path: Path, text: str, message: str) -> None:
    file = write_file(tmp_path, text)
    with pytest.raises(Invalid) as caught:
        load_skills(file)
    assert f"{file}: {message}" in caught.value.message
    assert caught.value.details["file"] == str(file)
    assert str(caught.value.details["key"]) in message


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("[[skill]\n", "skills.toml", "line 1"),
        ('a = "x"\na = "y"', "skills.toml", "cannot be read"),
        ('{"skill": [}', "skills.json", "line 1"),
        ("", "skills.json", "cannot be read"),
        ("[]", "skills.json", "has no tables"),
        ("null", "skills.json", "has no tables"),
        ('{"skill": [7]}', "skills.json", "skill 1 must be a table"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, text: str, name: str, message: str) -> None:
    file = write_file(tmp_path, text, name)
    with pytest.raises(Invalid, match=message) as caught:
        load_skills(file)
    assert str(file) in caught.value.message


@pytest.mark.req("X-03")
def test_a_missing_or_binary_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("nowhere.toml", "bytes.toml", ""):
        with pytest.raises(Invalid, match="cannot be read") as caught:
            load_skills(tmp_path / name)
        assert caught.value.details["file"] == str(tmp_path / name)


def test_the_digest_changes_with_every_field() -> None:
    skills = load_skills()
    assert compute_skills_digest(skills) == compute_skills_digest(load_skills())
    first = skills[0]
    others = [
        [*skills[1:], first],
        skills[1:],
        [replace(first, name="X"), *skills[1:]],
        [replace(first, description="X"), *skills[1:]],
        [replace(first, keywords=("x",)), *skills[1:]],
        [replace(first, examples=("x",)), *skills[1:]],
        [replace(first, parent_domain=None), *skills[1:]],
        [],
    ]
    assert len({compute_skills_digest(skills), *map(compute_skills_digest, others)}) == len(others) + 1
