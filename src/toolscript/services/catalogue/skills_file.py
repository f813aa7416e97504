"""The skills that there are from the start: the packaged ones, and those of a file that adds to or replaces them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from toolscript.domain.catalog import Skill
from toolscript.domain.errors import Invalid
from toolscript.services.catalogue.skills import check_skill

MAX_SKILLS = 1000
TEXTS = ("id", "name", "description", "parent_domain")
LISTS = ("keywords", "examples")


def load_skills(file: Path | None = None) -> list[Skill]:
    """The packaged skills, then those of a TOML or JSON file: `[[skill]]` tables, where one with the id of a packaged
    skill takes its place, and with `replace = true` at the top all do. Raises Invalid, naming file, skill and key."""
    text = resources.files("toolscript").joinpath("data/skills.toml").read_text(encoding="utf-8")
    packaged = {
        s.id: s for s in (_skill(told, "skills.toml", n) for n, told in enumerate(tomllib.loads(text)["skill"]))
    }
    if file is None:
        return list(packaged.values())
    told = _read(file)
    unknown = sorted(told.keys() - {"replace", "skill"})
    if unknown:
        raise _wrong(file, unknown[0], "is not known: give replace and skill")
    if not isinstance(told.get("replace", False), bool):
        raise _wrong(file, "replace", "is true or false")
    rows = told.get("skill", [])
    if not isinstance(rows, list):
        raise _wrong(file, "skill", "is a list of tables: write [[skill]]")
    own = [_skill(row, str(file), n) for n, row in enumerate(rows)]
    if len(own) > MAX_SKILLS:
        raise _wrong(file, "skill", f"is there {len(own)} times: {MAX_SKILLS} skills at most can be told apart")
    for skill in own:
        if sum(s.id == skill.id for s in own) > 1:
            raise _wrong(file, f"skill {skill.id}", "is there twice")
    return list({**({} if told.get("replace") else packaged), **{s.id: s for s in own}}.values())


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.expanduser().read_text(encoding="utf-8")
        told = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise Invalid(f"the skills of {file} cannot be read: {error}", details={"file": str(file)}) from error
    if not isinstance(told, dict):
        raise Invalid(f"{file} holds no tables: write [[skill]]", details={"file": str(file)})
    return told


def _skill(told: Any, file: str, number: int) -> Skill:
    where = f"skill {number + 1}"
    if not isinstance(told, Mapping):
        raise _wrong(file, where, "is not a table")
    where = f"skill {told['id']}" if isinstance(told.get("id"), str) else where
    for key, value in told.items():
        if key in LISTS and not (isinstance(value, list) and all(isinstance(v, str) for v in value)):
            raise _wrong(file, f"{where}, {key}", "is a list of texts")
        if key in TEXTS and not isinstance(value, str):
            raise _wrong(file, f"{where}, {key}", "is a text")
        if key not in {*TEXTS, *LISTS}:
            raise _wrong(file, f"{where}, {key}", f"is not known: give {', '.join([*TEXTS, *LISTS])}")
    for key in ("id", "name"):
        if key not in told:
            raise _wrong(file, where, f"has no {key}")
    given = {**told, **{key: tuple(told.get(key, ())) for key in LISTS}}
    try:
        return check_skill(Skill(**given))
    except Invalid as error:
        raise _wrong(file, f"{where}:", error.message) from error


def _wrong(file: Path | str, key: str, what: str) -> Invalid:
    return Invalid(f"{file}: {key} {what}", details={"file": str(file), "key": key.rstrip(":")})
