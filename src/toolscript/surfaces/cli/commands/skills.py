"""`toolscript skills`: the skills that tools are grouped into, and people's decisions about them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.catalog import Skill
from toolscript.domain.errors import Invalid, NotFound
from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.session import (
    CommandSession,
    Local,
    read_settings,
    report_change_of_demo,
    run_in_session,
)
from toolscript.surfaces.cli.commands.skills_review import (
    SKILLS,
    TIMEOUT_SECONDS,
    approve,
    merge,
    print_skill,
    propose,
    reject,
    request,
    suggestions,
)
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import confirm_or_raise, print_answer, print_text, printable
from toolscript.surfaces.json.skills import (
    build_skill_response,
    build_skill_tools_response,
    build_skills_response,
    build_tool_skills_response,
)

if TYPE_CHECKING:
    from toolscript.app.app import App

# Path segments after /api/v1/skills/ that are not ids of skills.
RESERVED_IDS = frozenset({"", "suggestions"})
TEXTS = ("id", "name", "parent_domain", "description")
LISTS = ("keywords", "examples")
EXPORT_HEADER = """\
# The skills of a Toolscript installation. Set TOOLSCRIPT_SKILLS to the path of this file.
# The next line replaces the packaged skills; without it, these are added to them.
replace = true
"""

Answer = Mapping[str, Any]

skill_argument = click.argument("skill_id", metavar="ID", shell_complete=complete("skills"))
tool_argument = click.argument("tool_id", metavar="TOOL", shell_complete=complete("tools"))


@click.group(cls=CommandGroup)
def skills() -> None:
    """List, edit and review the skills that tools are grouped into.

    A search with --strategy hierarchical finds skills first and then tools within them. Tools are classified into
    skills when their server is connected; for tools that fit no skill a new one is suggested, for a person to decide.
    A gateway that runs on the data folder is used; without one the data folder is opened.

    \b
    toolscript skills list
    toolscript skills search "put a meeting into my calendar"
    toolscript skills add bee_keeping --name "Bee Keeping" --description "Hives"
    toolscript skills assign garden__inspect_hive bee_keeping
    toolscript skills suggestions
    toolscript skills export > skills.toml
    """


@skills.command("list")
@options.catalogue
def list_() -> None:
    """List all skills, with the number of tools in each."""
    request(SKILLS, lambda app: app.catalogue.skills.all(), build_skills_response, show=_show_skills)


@skills.command()
@skill_argument
@options.catalogue
def show(skill_id: str) -> None:
    """Show a skill and its tools, ordered by confidence.

    \b
    toolscript skills show file_operations
    """
    path = _build_skill_path(skill_id)

    async def find(session: CommandSession) -> Answer:
        skill = await session.request(path, lambda app: app.catalogue.skills.get(skill_id), build_skill_response)
        tools = await session.request(
            f"{path}/tools",
            lambda app: app.catalogue.skills.tools(skill_id),
            lambda items: build_skill_tools_response(skill_id, items),
        )
        return {**skill, "tools": tools["tools"]}

    print_answer(run_in_session(read_settings(), find), _show_skill)


@skills.command()
@click.argument("query")
@options.limit(50, 5, "skills")
@click.option(
    "--threshold", type=click.FloatRange(0, 1), default=0.4, show_default=True, help="Minimum score of a skill."
)
@options.catalogue
def search(query: str, limit: int, threshold: float) -> None:
    """Find the skills for a task.

    \b
    toolscript skills search "put a meeting into my calendar"
    """
    http: dict[str, Any] = {"limit": limit, "threshold": threshold}

    async def local(app: App) -> Any:
        from toolscript.surfaces.json.hierarchical import build_skill_hit

        return [build_skill_hit(hit) for hit in await app.tools.hierarchical_search.find_skills(query, **http)]

    request(
        "/api/v1/search/skills",
        local,
        show=_show_hits,
        query=query,
        **http,
    )


@skills.command()
@skill_argument
@click.option("--name", required=True, help="Name of the skill.")
@click.option("--description", default="", help="What its tools do; a skill without tools is found by this text.")
@click.option("--keyword", "keywords", multiple=True, metavar="WORD", help="A word that people use for it; repeatable.")
@click.option("--example", "examples", multiple=True, metavar="TOOL", help="The name of a typical tool; repeatable.")
@click.option("--domain", "parent_domain", help="The larger field that the skill belongs to.")
@options.catalogue
def add(
    skill_id: str, parent_domain: str | None, keywords: Sequence[str], examples: Sequence[str], **texts: Any
) -> None:
    """Add a skill, and classify again the tools that are in no skill.

    ID consists of a-z, 0-9 and _, and starts with a letter. Exits with 7 when a skill with that id exists.

    \b
    toolscript skills add bee_keeping --name "Bee Keeping" --domain nature \\
        --description "Hives, queens and honey." --example inspect_hive
    """
    skill = Skill(
        skill_id, parent_domain=parent_domain or None, keywords=tuple(keywords), examples=tuple(examples), **texts
    )
    request(
        SKILLS,
        lambda app: app.catalogue.skills.create(skill),
        build_skill_response,
        show=lambda added: print_skill("Added", added),
        body=asdict(skill),
    )


@skills.command()
@skill_argument
@click.option("--name", help="New name.")
@click.option("--description", help="New description of what its tools do.")
@click.option(
    "--keyword", "keywords", multiple=True, metavar="WORD", help='Replaces all keywords; repeatable; "" for none.'
)
@click.option(
    "--example", "examples", multiple=True, metavar="TOOL", help='Replaces all examples; repeatable; "" for none.'
)
@click.option("--domain", "parent_domain", help='The larger field that the skill belongs to; "" for none.')
@click.option("--active/--inactive", "is_active", default=None, help="Whether searches and classifiers use the skill.")
@options.catalogue
def edit(skill_id: str, **given: Any) -> None:
    """Change a skill; options that are not given leave their fields unchanged.

    Tools that are in no skill are classified again, and so are the tools of a skill that becomes inactive.

    \b
    toolscript skills edit bee_keeping --description "Hives, honey and wax."
    toolscript skills edit bee_keeping --inactive
    """
    changes = {name: value for name, value in given.items() if value not in {None, ()}}
    if not changes:
        raise Invalid(
            "nothing to change: give at least one of --name, --description, --keyword, --example, --domain, "
            "--active and --inactive"
        )
    for name in {"keywords", "examples"} & changes.keys():
        changes[name] = tuple(word for word in changes[name] if word)
    path = _build_skill_path(skill_id)

    async def change(session: CommandSession) -> Any:
        if session.app is not None:
            before = (await session.app.catalogue.skills.get(skill_id)).skill
            return build_skill_response(
                await session.app.catalogue.skills.replace(skill_id, replace(before, **changes))
            )
        existing = await session.send(path)
        body = {each.name: existing[each.name] for each in fields(Skill)} | changes
        return await session.send(path, method="PUT", body=body, timeout_seconds=TIMEOUT_SECONDS)

    print_answer(run_in_session(read_settings(), change), lambda skill: print_skill("Changed", skill))
    report_change_of_demo()


@skills.command()
@skill_argument
@options.yes
@options.catalogue
def remove(skill_id: str, yes: bool) -> None:
    """Remove a skill, and classify its tools again.

    People's decisions about its tools are lost. To keep them, make the skill inactive instead:
    toolscript skills edit ID --inactive
    """
    if not yes:
        confirm_or_raise(f"Remove the skill {printable(skill_id)}, and classify its tools again?")
    request(_build_skill_path(skill_id), lambda app: app.catalogue.skills.remove(skill_id), method="DELETE")
    print_answer({"removed": skill_id}, lambda _: click.echo(f"Removed {printable(skill_id)}."))


@skills.command()
@tool_argument
@click.argument("skill_ids", metavar="SKILL...", nargs=-1, required=True, shell_complete=complete("skills"))
@options.catalogue
def assign(tool_id: str, skill_ids: Sequence[str]) -> None:
    """Assign a tool to one to three skills, the best match first.

    No classifier changes that, until the tool is released or a sync is forced.

    \b
    toolscript skills assign garden__inspect_hive bee_keeping
    toolscript skills assign github__create_issue issue_tracking source_control
    """
    http = {"method": "PUT", "body": {"skill_ids": list(skill_ids)}}
    _change_tool(tool_id, lambda app: app.catalogue.skills.assign(tool_id, skill_ids), **http)


@skills.command()
@tool_argument
@options.catalogue
def release(tool_id: str) -> None:
    """Undo an assignment, and classify the tool again.

    \b
    toolscript skills release garden__inspect_hive
    """
    _change_tool(tool_id, lambda app: app.catalogue.skills.release(tool_id), method="DELETE")


@skills.command()
@options.catalogue
def export() -> None:
    """Print the active skills as a file for TOOLSCRIPT_SKILLS: TOML, or JSON with --json.

    The file has the skills, not the tools in them. Inactive skills are left out, and named on standard error.

    \b
    toolscript skills export > skills.toml
    TOOLSCRIPT_SKILLS=skills.toml toolscript gateway start
    """
    found = request(SKILLS, lambda app: app.catalogue.skills.all(), build_skills_response)["skills"]
    exported = [{key: s[key] for key in (*TEXTS, *LISTS) if s[key]} for s in found if s["is_active"]]
    print_answer({"replace": True, "skill": exported}, lambda file: print_text(to_toml(file["skill"]), nl=False))
    inactive = [s["id"] for s in found if not s["is_active"]]
    if inactive:
        click.echo(f"Left out because inactive: {printable(', '.join(inactive))}", err=True)


for command in (suggestions, approve, reject, merge, propose):
    skills.add_command(command)


def to_toml(skills: Sequence[Answer]) -> str:
    """The file with these skills; fields without a value are missing."""
    tables = []
    for skill in skills:
        texts = [f"{key} = {_quote(skill[key])}\n" for key in TEXTS if skill.get(key)]
        lists = [f"{key} = [{', '.join(map(_quote, skill[key]))}]\n" for key in LISTS if skill.get(key)]
        tables.append("\n[[skill]]\n" + "".join([*texts, *lists]))
    return EXPORT_HEADER + "".join(tables)


def _quote(text: str) -> str:
    """A basic string of TOML: a JSON string except for the character DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _build_skill_path(skill_id: str) -> str:
    if skill_id in RESERVED_IDS:
        raise NotFound(f"no such skill: {skill_id!r}; see toolscript skills list", details={"skill_id": skill_id})
    return f"{SKILLS}/{quote(skill_id, safe='', errors='replace')}"


def _change_tool(tool_id: str, local: Local, **http: Any) -> None:
    path = f"/api/v1/tools/{quote(tool_id, safe='', errors='replace')}/skills"
    request(path, local, build_tool_skills_response, show=_print_assignment, **http)


def _format_name(skill: Answer) -> str:
    return str(skill["name"]) + ("" if skill["is_active"] else "  (inactive)")


def _show_skills(answer: Answer) -> None:
    columns: Columns = {"Skill": "id", "Name": _format_name, "Tools": "tool_count", "Domain": "parent_domain"}
    empty = "No skills: add one with toolscript skills add, or see toolscript skills propose."
    print_table(columns, answer["skills"], empty)


def _show_skill(answer: Answer) -> None:
    about = {
        "Name": _format_name(answer),
        "Description": answer["description"],
        "Domain": answer["parent_domain"],
        "Keywords": answer["keywords"],
        "Examples": answer["examples"],
        "Tools": str(answer["tool_count"]),
    }
    columns: Columns = {"Skill": itemgetter(0), answer["id"]: itemgetter(1)}
    print_table(columns, [each for each in about.items() if each[1]])
    if answer["tools"]:
        click.echo()
        columns = {"Tool": "id", "Confidence": "confidence", "Assigned by": _describe_origin}
        print_table({**columns, "Description": "description"}, answer["tools"])


def _describe_origin(assignment: Answer) -> str:
    origins = {"human": "a person", "llm_auto": "language model", "embedding_auto": "embedding model"}
    origin = origins.get(assignment["origin"]) or str(assignment["origin"])
    return origin if assignment["is_primary"] else f"{origin}, not first"


def _show_hits(answer: Sequence[Answer]) -> None:
    columns = {"Skill": "id", "Score": "score", "Tools": "tool_count", "Name": "name"}
    empty = "No skills found matching query\nTry different words, or lower the threshold with --threshold."
    print_table(columns, answer, empty)


def _print_assignment(answer: Answer) -> None:
    names = ", ".join(f"{a['skill_id']} ({_describe_origin(a)})" for a in answer["skills"])
    click.echo(printable(f"{answer['id']} is in {names or 'no skill: see toolscript skills suggestions'}"))
