"""`toolscript skills`: the skills that tools are grouped into, and people's decisions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.catalog import Skill
from toolscript.domain.errors import Invalid, NotFound
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.commands.skills_export import export
from toolscript.surfaces.cli.commands.skills_review import (
    TIMEOUT_SECONDS,
    approve,
    merge,
    propose,
    reject,
    request,
    suggestions,
)
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import confirm_or_raise, format_count, print_answer, printable
from toolscript.surfaces.json.hierarchical import build_skill_hit
from toolscript.surfaces.json.skills import (
    build_skill_response,
    build_skill_tools_response,
    build_skills_response,
    build_tool_skills_response,
)

if TYPE_CHECKING:
    from toolscript.app.app import App

SKILLS = "/api/v1/skills"
# Path segments after /api/v1/skills/ that are not ids of skills.
RESERVED_IDS = frozenset({"", "suggestions"})

Answer = Mapping[str, Any]


@click.group()
def skills() -> None:
    """List, edit and review the skills that tools are grouped into.

    A search with --strategy hierarchical finds skills first and then tools within them. Tools are classified into
    skills when their server is connected; for tools that fit no skill a new one is suggested, for a person to decide.
    A gateway that runs on the data folder is used; without one the data folder is opened.

    \b
    toolscript skills list
    toolscript skills search "put a meeting into my calendar"
    toolscript skills add bee_keeping --name "Bee Keeping" --description "Hives, queens and honey." --keyword hive
    toolscript skills assign garden__inspect_hive bee_keeping
    toolscript skills suggestions
    toolscript skills export > skills.toml
    """


@skills.command("list")
@click.option("--active-only", is_flag=True, help="Leave out inactive skills.")
@options.catalogue
def list_(active_only: bool, as_json: bool, **flags: Any) -> None:
    """List all skills, with the number of tools in each."""
    http = {"active_only": active_only}
    answer = request(flags, SKILLS, lambda app: app.skills.all(**http), build_skills_response, **http)
    print_answer(answer, as_json, _show_skills)


@skills.command()
@click.argument("skill_id", metavar="ID")
@options.catalogue
def show(skill_id: str, as_json: bool, **flags: Any) -> None:
    """Show a skill and its tools, ordered by confidence.

    \b
    toolscript skills show file_operations
    """
    path = _build_skill_path(skill_id)

    async def local_skill(app: App) -> Answer:
        return build_skill_response(await app.skills.get(skill_id))

    async def local_tools(app: App) -> Answer:
        return build_skill_tools_response(skill_id, await app.skills.tools(skill_id))

    async def find(session: CommandSession) -> Answer:
        skill = await session.request(path, local_skill)
        return {**skill, "tools": (await session.request(f"{path}/tools", local_tools))["tools"]}

    print_answer(run_in_session(read_settings(flags), find), as_json, _show_skill)


@skills.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(1, 50), default=5, show_default=True, help="Maximum number of skills.")
@click.option(
    "--threshold", type=click.FloatRange(0, 1), default=0.4, show_default=True, help="Minimum score of a skill."
)
@options.catalogue
def search(query: str, limit: int, threshold: float, as_json: bool, **flags: Any) -> None:
    """Find the skills for a task.

    \b
    toolscript skills search "put a meeting into my calendar"
    """
    answer = request(
        flags,
        "/api/v1/search/skills",
        lambda app: app.hierarchical_search.find_skills(query, limit=limit, threshold=threshold),
        lambda hits: [build_skill_hit(hit) for hit in hits],
        query=query,
        limit=limit,
        threshold=threshold,
    )
    print_answer(answer, as_json, _show_hits)


@skills.command()
@click.argument("skill_id", metavar="ID")
@click.option("--name", required=True, help="Name of the skill.")
@click.option("--description", default="", help="What its tools do; a skill without tools is found by this text.")
@click.option("--keyword", "keywords", multiple=True, metavar="WORD", help="A word that people use for it; repeatable.")
@click.option("--example", "examples", multiple=True, metavar="TOOL", help="The name of a typical tool; repeatable.")
@click.option("--domain", "parent_domain", help="The larger field that the skill belongs to.")
@options.catalogue
def add(
    skill_id: str,
    name: str,
    description: str,
    keywords: Sequence[str],
    examples: Sequence[str],
    parent_domain: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Add a skill, and classify again the tools that are in no skill.

    ID consists of a-z, 0-9 and _, and starts with a letter. Exits with 7 when a skill with that id exists.

    \b
    toolscript skills add bee_keeping --name "Bee Keeping" --description "Hives, queens and honey." \\
        --keyword hive --keyword honey --example inspect_hive --domain nature
    """
    skill = Skill(skill_id, name, description, parent_domain or None, tuple(keywords), tuple(examples))
    answer = request(flags, SKILLS, lambda app: app.skills.create(skill), build_skill_response, body=asdict(skill))
    print_answer(answer, as_json, lambda changed: _print_skill("Added", changed))


@skills.command()
@click.argument("skill_id", metavar="ID")
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
def edit(skill_id: str, as_json: bool, config: str | None, data_dir: str | None, **given: Any) -> None:
    """Change a skill; options that are not given leave their fields unchanged.

    Tools that are in no skill are classified again, and so are those of a skill that becomes inactive.

    \b
    toolscript skills edit bee_keeping --description "Hives, queens, honey and wax." --keyword hive --keyword wax
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

    async def change(session: CommandSession) -> Answer:
        if session.app is not None:
            before = (await session.app.skills.get(skill_id)).skill
            return build_skill_response(await session.app.skills.replace(skill_id, replace(before, **changes)))
        existing = await session.send(path)
        body = {each.name: existing[each.name] for each in fields(Skill)} | changes
        changed: Answer = await session.send(path, method="PUT", body=body, timeout_seconds=TIMEOUT_SECONDS)
        return changed

    answer = run_in_session(read_settings({"config": config, "data_dir": data_dir}), change)
    print_answer(answer, as_json, lambda changed: _print_skill("Changed", changed))


@skills.command()
@click.argument("skill_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.catalogue
def remove(skill_id: str, yes: bool, as_json: bool, **flags: Any) -> None:
    """Remove a skill, and classify its tools again.

    People's decisions about its tools are lost. To keep them, make the skill inactive instead:
    toolscript skills edit ID --inactive
    """
    if not yes:
        confirm_or_raise(f"Remove the skill {printable(skill_id)}, and classify its tools again?")
    removed = {"removed": skill_id}
    request(
        flags, _build_skill_path(skill_id), lambda app: app.skills.remove(skill_id), lambda _: removed, method="DELETE"
    )
    print_answer(removed, as_json, lambda _: click.echo(f"Removed {printable(skill_id)}."))


@skills.command()
@click.argument("tool_id", metavar="TOOL")
@click.argument("skill_ids", metavar="SKILL...", nargs=-1, required=True)
@options.catalogue
def assign(tool_id: str, skill_ids: Sequence[str], as_json: bool, **flags: Any) -> None:
    """Assign a tool to one to three skills, the best match first.

    No classifier changes that, until the tool is released or a sync is forced.

    \b
    toolscript skills assign garden__inspect_hive bee_keeping
    toolscript skills assign github__create_issue issue_tracking source_control
    """
    path, http = _build_tool_path(tool_id), {"method": "PUT", "body": {"skill_ids": list(skill_ids)}}
    answer = request(flags, path, lambda app: app.skills.assign(tool_id, skill_ids), build_tool_skills_response, **http)
    print_answer(answer, as_json, _print_assignment)


@skills.command()
@click.argument("tool_id", metavar="TOOL")
@options.catalogue
def release(tool_id: str, as_json: bool, **flags: Any) -> None:
    """Undo an assignment, and classify the tool again.

    \b
    toolscript skills release garden__inspect_hive
    """
    path = _build_tool_path(tool_id)
    answer = request(flags, path, lambda app: app.skills.release(tool_id), build_tool_skills_response, method="DELETE")
    print_answer(answer, as_json, _print_assignment)


for command in (suggestions, approve, reject, merge, propose, export):
    skills.add_command(command)


def _build_skill_path(skill_id: str) -> str:
    if skill_id in RESERVED_IDS:
        raise NotFound(f"no such skill: {skill_id!r}; see toolscript skills list", details={"skill_id": skill_id})
    return f"{SKILLS}/{quote(skill_id, safe='', errors='replace')}"


def _build_tool_path(tool_id: str) -> str:
    return f"/api/v1/tools/{quote(tool_id, safe='', errors='replace')}/skills"


def _format_name(skill: Answer) -> str:
    return str(skill["name"]) + ("" if skill["is_active"] else "  (inactive)")


def _show_skills(answer: Answer) -> None:
    rows = [(s["id"], _format_name(s), str(s["tool_count"]), s["parent_domain"] or "") for s in answer["skills"]]
    if rows:
        print_table(("Skill", "Name", "Tools", "Domain"), rows, right=["Tools"])
    else:
        click.echo("No skills: add one with toolscript skills add, or see toolscript skills propose.")


def _show_skill(answer: Answer) -> None:
    about = [
        ("Name", _format_name(answer)),
        ("Description", answer["description"]),
        ("Domain", answer["parent_domain"] or ""),
        ("Keywords", ", ".join(answer["keywords"])),
        ("Examples", ", ".join(answer["examples"])),
        ("Tools", str(answer["tool_count"])),
    ]
    print_table(("Skill", answer["id"]), [(name, text) for name, text in about if text])
    if answer["tools"]:
        click.echo()
        rows = [(t["id"], f"{t['confidence']:.2f}", _describe_origin(t), t["description"]) for t in answer["tools"]]
        print_table(("Tool", "Confidence", "Assigned by", "Description"), rows, right=["Confidence"])


def _describe_origin(assignment: Answer) -> str:
    origins = {"human": "a person", "llm_auto": "language model", "embedding_auto": "embedding model"}
    origin = origins.get(assignment["origin"]) or str(assignment["origin"])
    return origin if assignment["is_primary"] else f"{origin}, not first"


def _show_hits(answer: Sequence[Answer]) -> None:
    rows = [(s["id"], f"{s['score']:.2f}", str(s["tool_count"]), s["name"]) for s in answer]
    if rows:
        print_table(("Skill", "Score", "Tools", "Name"), rows, right=["Score", "Tools"])
    else:
        click.echo("No skills found matching query")
        click.echo("Try different words, or lower the threshold with --threshold.")


def _print_skill(done: str, skill: Answer) -> None:
    click.echo(f"{done} {skill['id']}: {format_count(skill['tool_count'], 'tool')}.")


def _print_assignment(answer: Answer) -> None:
    names = ", ".join(f"{a['skill_id']} ({_describe_origin(a)})" for a in answer["skills"])
    click.echo(printable(f"{answer['id']} is in {names or 'no skill: see toolscript skills suggestions'}"))
