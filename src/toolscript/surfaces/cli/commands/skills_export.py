"""`toolscript skills export`: the skills there are, as a file that another installation can start from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolscript.surfaces.cli.client.ask import answered, places
from toolscript.surfaces.cli.terminal.text import printable

if TYPE_CHECKING:
    from toolscript.app.app import App

TEXTS = ("id", "name", "parent_domain", "description")
LISTS = ("keywords", "examples")
HEADER = """\
# The skills of a Toolscript installation, to be named in TOOLSCRIPT_SKILLS.
# Without the next line these are added to the packaged skills instead of taking their place.
replace = true
"""


@click.command()
@places
def export(as_json: bool, **flags: Any) -> None:
    """Print the skills that are in use as a file for TOOLSCRIPT_SKILLS: TOML, or JSON with --json.

    Skills are told, not which tools are in them. Those that are not in use are left out, and named.

    \b
    toolscript skills export > skills.toml
    TOOLSCRIPT_SKILLS=skills.toml toolscript gateway start
    """

    async def here(app: App) -> Mapping[str, Any]:
        from toolscript.surfaces.json.skills import build_skills_response

        return build_skills_response(await app.skills.all())

    told = answered(flags, here, "/api/v1/skills")["skills"]
    used = [skill for skill in told if skill["is_active"]]
    click.echo(_json(used) if as_json else toml_of(used), nl=as_json)
    unused = [skill["id"] for skill in told if not skill["is_active"]]
    if unused:
        click.echo(f"Left out, because not in use: {printable(', '.join(unused))}", err=True)


def toml_of(skills: Sequence[Mapping[str, Any]]) -> str:
    """The skills, as answers tell them, as a file in TOML."""
    tables = []
    for skill in skills:
        texts = [f"{key} = {_text(skill[key])}\n" for key in TEXTS if skill[key]]
        lists = [f"{key} = [{', '.join(map(_text, skill[key]))}]\n" for key in LISTS if skill[key]]
        tables.append("\n[[skill]]\n" + "".join([*texts, *lists]))
    return HEADER + "".join(tables)


def _text(text: str) -> str:
    """A basic string of TOML, which JSON's strings are too but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _json(skills: Sequence[Mapping[str, Any]]) -> str:
    kept = [{key: skill[key] for key in (*TEXTS, *LISTS) if skill[key]} for skill in skills]
    return json.dumps({"replace": True, "skill": kept}, ensure_ascii=False)
