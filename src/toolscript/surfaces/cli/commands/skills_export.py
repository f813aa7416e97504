"""`toolscript skills export`: the active skills as a file that another installation can start with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from toolscript.surfaces.cli.commands.skills_review import request
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import printable
from toolscript.surfaces.json.skills import build_skills_response

TEXTS = ("id", "name", "parent_domain", "description")
LISTS = ("keywords", "examples")
HEADER = """\
# The skills of a Toolscript installation. Set TOOLSCRIPT_SKILLS to the path of this file.
# The next line replaces the packaged skills; without it, these are added to them.
replace = true
"""


@click.command()
@options.catalogue
def export(as_json: bool, **flags: Any) -> None:
    """Print the active skills as a file for TOOLSCRIPT_SKILLS: TOML, or JSON with --json.

    The file has the skills, not the tools in them. Inactive skills are left out, and named on standard error.

    \b
    toolscript skills export > skills.toml
    TOOLSCRIPT_SKILLS=skills.toml toolscript gateway start
    """
    skills = request(flags, "/api/v1/skills", lambda app: app.skills.all(), build_skills_response)["skills"]
    active = [skill for skill in skills if skill["is_active"]]
    click.echo(_to_json(active) if as_json else to_toml(active), nl=as_json)
    inactive = [skill["id"] for skill in skills if not skill["is_active"]]
    if inactive:
        click.echo(f"Left out because inactive: {printable(', '.join(inactive))}", err=True)


def to_toml(skills: Sequence[Mapping[str, Any]]) -> str:
    """Skills, as in the JSON of answers, as a TOML file."""
    tables = []
    for skill in skills:
        texts = [f"{key} = {_quote(skill[key])}\n" for key in TEXTS if skill[key]]
        lists = [f"{key} = [{', '.join(map(_quote, skill[key]))}]\n" for key in LISTS if skill[key]]
        tables.append("\n[[skill]]\n" + "".join([*texts, *lists]))
    return HEADER + "".join(tables)


def _quote(text: str) -> str:
    """A basic string of TOML, which is a JSON string except for the character DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _to_json(skills: Sequence[Mapping[str, Any]]) -> str:
    kept = [{key: skill[key] for key in (*TEXTS, *LISTS) if skill[key]} for skill in skills]
    return json.dumps({"replace": True, "skill": kept}, ensure_ascii=False)
