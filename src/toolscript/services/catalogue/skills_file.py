"""The initial skills: the packaged skills, and the skills of a file that adds to them or replaces them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from toolscript.domain.catalog import Skill
from toolscript.domain.errors import Invalid
from toolscript.domain.spelling import suggest
from toolscript.services.catalogue.skills import check_skill

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
    content = _read(file)
    unknown = sorted(content.keys() - {*TOP})
    if unknown:
        raise _invalid(file, unknown[0], f"is an unknown key: use replace and skill{suggest(unknown[0], TOP)}")
    if not isinstance(content.get("replace", False), bool):
        raise _invalid(file, "replace", "must be true or false")
    rows = content.get("skill", [])
    if not isinstance(rows, list):
        raise _invalid(file, "skill", "must be a list of tables: write [[skill]]")
    own = [_parse_skill(row, str(file), n) for n, row in enumerate(rows)]
    if len(own) > MAX_SKILLS:
        raise _invalid(file, "skill", f"has {len(own)} entries, at most {MAX_SKILLS} are allowed")
    for skill in own:
        if sum(s.id == skill.id for s in own) > 1:
            raise _invalid(file, f"skill {skill.id}", "is defined twice")
    return list({**({} if content.get("replace") else packaged), **{s.id: s for s in own}}.values())


@cache
def _load_packaged() -> Mapping[str, Skill]:
    text = resources.files("toolscript").joinpath("data/skills.toml").read_text(encoding="utf-8")
    skills = [_parse_skill(row, "skills.toml", n) for n, row in enumerate(tomllib.loads(text)["skill"])]
    return {skill.id: skill for skill in skills}


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.expanduser().read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise Invalid(f"cannot read skills from {file}: {error}", details={"file": str(file)}) from error
    if not isinstance(content, dict):
        raise Invalid(f"{file} has no tables: write [[skill]]", details={"file": str(file)})
    return content


def _parse_skill(row: Any, file: str, number: int) -> Skill:
    where = f"skill {number + 1}"
    if not isinstance(row, Mapping):
        raise _invalid(file, where, "must be a table")
    where = f"skill {row['id']}" if isinstance(row.get("id"), str) else where
    for key, value in row.items():
        if key in LISTS and not (isinstance(value, list) and all(isinstance(v, str) for v in value)):
            raise _invalid(file, f"{where}, {key}", "must be a list of strings")
        if key in TEXTS and not isinstance(value, str):
            raise _invalid(file, f"{where}, {key}", "must be a string")
        if key not in {*TEXTS, *LISTS}:
            allowed = [*TEXTS, *LISTS]
            raise _invalid(
                file, f"{where}, {key}", f"is an unknown key: use {', '.join(allowed)}{suggest(key, allowed)}"
            )
    for key in ("id", "name"):
        if key not in row:
            raise _invalid(file, where, f"has no {key}")
    given = {**row, **{key: tuple(row.get(key, ())) for key in LISTS}}
    try:
        return check_skill(Skill(**given))
    except Invalid as error:
        raise _invalid(file, f"{where}:", error.message) from error


def _invalid(file: Path | str, key: str, what: str) -> Invalid:
    return Invalid(f"{file}: {key} {what}", details={"file": str(file), "key": key.rstrip(":")})
