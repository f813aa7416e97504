"""The initial skills: the packaged skills, and the skills of a file that adds to them or replaces them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from toolscript.configuration.tables import check_keys, describe_problem, read_tables
from toolscript.domain.catalog import Skill
from toolscript.domain.errors import Invalid
from toolscript.services.skills.skills import check_skill

MAX_SKILLS = 1000
TOP = ("replace", "skill")
TEXTS = ("id", "name", "description", "parent_domain")
LISTS = ("keywords", "examples")


def load_skills(file: Path | None = None) -> list[Skill]:
    """The packaged skills, then the skills of a TOML or JSON file of `[[skill]]` tables. A skill with the id of a
    packaged skill replaces it; with `replace = true` at the top, the file replaces all of them. Raises Invalid, naming
    file, skill and key."""
    packaged = _load_packaged()
    if file is None:
        return list(packaged.values())
    content = read_tables(file, "[[skill]]")
    check_keys(file, content, TOP)
    if not isinstance(content.get("replace", False), bool):
        raise describe_problem(file, "replace", "must be true or false")
    rows = content.get("skill", [])
    if not isinstance(rows, list):
        raise describe_problem(file, "skill", "must be a list of tables: write [[skill]]")
    skills = [_parse_skill(row, str(file), n) for n, row in enumerate(rows)]
    if len(skills) > MAX_SKILLS:
        raise describe_problem(file, "skill", f"has {len(skills)} entries, at most {MAX_SKILLS} are allowed")
    for skill in skills:
        if sum(s.id == skill.id for s in skills) > 1:
            raise describe_problem(file, f"skill {skill.id}", "is defined twice")
    return list({**({} if content.get("replace") else packaged), **{s.id: s for s in skills}}.values())


@cache
def _load_packaged() -> Mapping[str, Skill]:
    text = resources.files("toolscript").joinpath("data/skills.toml").read_text(encoding="utf-8")
    skills = [_parse_skill(row, "skills.toml", n) for n, row in enumerate(tomllib.loads(text)["skill"])]
    return {skill.id: skill for skill in skills}


def _parse_skill(row: Any, file: str, number: int) -> Skill:
    where = f"skill {number + 1}"
    if not isinstance(row, Mapping):
        raise describe_problem(file, where, "must be a table")
    where = f"skill {row['id']}" if isinstance(row.get("id"), str) else where
    for key, value in row.items():
        if key in LISTS and not (isinstance(value, list) and all(isinstance(v, str) for v in value)):
            raise describe_problem(file, f"{where}, {key}", "must be a list of strings")
        if key in TEXTS and not isinstance(value, str):
            raise describe_problem(file, f"{where}, {key}", "must be a string")
    check_keys(file, row, (*TEXTS, *LISTS), f"{where}, ")
    for key in ("id", "name"):
        if key not in row:
            raise describe_problem(file, where, f"has no {key}")
    given = {**row, **{key: tuple(row.get(key, ())) for key in LISTS}}
    try:
        return check_skill(Skill(**given))
    except Invalid as error:
        raise describe_problem(file, f"{where}:", error.message) from error
