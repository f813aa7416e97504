"""`toolscript skills`: the skills that tools are sorted into, and the word of people on who belongs where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.catalog import Skill
from toolscript.domain.errors import Invalid, NotFound
from toolscript.surfaces.cli.client.ask import PATIENCE_SECONDS, answered, places, settings_of, tell
from toolscript.surfaces.cli.client.catalogue import from_catalogue
from toolscript.surfaces.cli.client.gateway import ask
from toolscript.surfaces.cli.commands.skills_export import export
from toolscript.surfaces.cli.commands.skills_review import approve, merge, propose, reject, suggestions
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import printable

if TYPE_CHECKING:
    from toolscript.app.app import App

SKILLS = "/api/v1/skills"
# What stands where the id of a skill would, and leads elsewhere.
NO_IDS = frozenset({"", "suggestions"})

Answer = Mapping[str, Any]


@click.group()
def skills() -> None:
    """The skills that tools are sorted into.

    A search with --strategy hierarchical finds skills first and then tools within them. Tools are sorted into skills
    when their server is connected; what fits nowhere waits as a suggestion for a person to decide. A gateway that runs
    on the data folder is asked; without one the data folder is opened.

    \b
    toolscript skills list
    toolscript skills search "put a meeting into my calendar"
    toolscript skills add bee_keeping --name "Bee Keeping" --description "Hives, queens and honey." --keyword hive
    toolscript skills assign garden__inspect_hive bee_keeping
    toolscript skills suggestions
    toolscript skills export > skills.toml
    """


@skills.command("list")
@click.option("--active-only", is_flag=True, help="Leave out those that are not in use.")
@places
def list_(active_only: bool, as_json: bool, **flags: Any) -> None:
    """Every skill, and how many tools are in it."""

    async def here(app: App) -> Answer:
        from toolscript.surfaces.json.skills import build_skills_response

        return build_skills_response(await app.skills.all(active_only=active_only))

    tell(answered(flags, here, SKILLS, active_only=active_only), as_json, _show_skills)


@skills.command()
@click.argument("skill_id", metavar="ID")
@places
def show(skill_id: str, as_json: bool, **flags: Any) -> None:
    """One skill, and the tools in it, surest first.

    \b
    toolscript skills show file_operations
    """
    settings = settings_of(flags)
    path = _path(skill_id)
    skill, tools = ask(settings, path), ask(settings, f"{path}/tools")
    if skill is None or tools is None:
        skill, tools = from_catalogue(settings, lambda app: _looked_up(app, skill_id))
    tell({**skill, "tools": tools["tools"]}, as_json, _show_skill)


@skills.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(1, 50), default=5, show_default=True, help="Most skills.")
@click.option(
    "--threshold", type=click.FloatRange(0, 1), default=0.4, show_default=True, help="Least score of a skill."
)
@places
def search(query: str, limit: int, threshold: float, as_json: bool, **flags: Any) -> None:
    """Find the skills for a task.

    \b
    toolscript skills search "put a meeting into my calendar"
    """

    async def here(app: App) -> Any:
        from toolscript.surfaces.json.hierarchical import build_skill_hit

        hits = await app.hierarchical_search.find_skills(query, limit=limit, threshold=threshold)
        return [build_skill_hit(hit) for hit in hits]

    question = {"query": query, "limit": limit, "threshold": threshold}
    tell(answered(flags, here, "/api/v1/search/skills", **question), as_json, _show_found)


@skills.command()
@click.argument("skill_id", metavar="ID")
@click.option("--name", required=True, help="What people read.")
@click.option("--description", default="", help="What its tools do; a skill without tools is found by this.")
@click.option("--keyword", "keywords", multiple=True, metavar="WORD", help="A word that people use for it; repeatable.")
@click.option("--example", "examples", multiple=True, metavar="TOOL", help="The name of a typical tool; repeatable.")
@click.option("--domain", "parent_domain", help="What the skill is a part of.")
@places
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
    """Add a skill, and sort the tools that are in none anew.

    ID is made of a-z, 0-9 and _, and starts with a letter. Ends with 7 when there is a skill of that id.

    \b
    toolscript skills add bee_keeping --name "Bee Keeping" --description "Hives, queens and honey." \\
        --keyword hive --keyword honey --example inspect_hive --domain nature
    """
    skill = Skill(skill_id, name, description, parent_domain or None, tuple(keywords), tuple(examples))

    async def here(app: App) -> Answer:
        from toolscript.surfaces.json.skills import build_skill_response

        return build_skill_response(await app.skills.create(skill))

    tell(answered(flags, here, SKILLS, body=asdict(skill)), as_json, lambda told: _say_skill("Added", told))


@skills.command()
@click.argument("skill_id", metavar="ID")
@click.option("--name", help="What people read.")
@click.option("--description", help="What its tools do.")
@click.option(
    "--keyword", "keywords", multiple=True, metavar="WORD", help='Replaces all keywords; repeatable; "": none.'
)
@click.option(
    "--example", "examples", multiple=True, metavar="TOOL", help='Replaces all examples; repeatable; "": none.'
)
@click.option("--domain", "parent_domain", help='What the skill is a part of; "": of nothing.')
@click.option("--active/--inactive", "is_active", default=None, help="Whether searches and classifiers use it.")
@places
def edit(skill_id: str, as_json: bool, config: str | None, data_dir: str | None, **given: Any) -> None:
    """Change what is given of a skill, and leave the rest.

    Tools that are in no skill are sorted anew, and so are those of a skill that is made inactive.

    \b
    toolscript skills edit bee_keeping --description "Hives, queens, honey and wax." --keyword hive --keyword wax
    toolscript skills edit bee_keeping --inactive
    """
    changes = {name: value for name, value in given.items() if value not in {None, ()}}
    if not changes:
        raise Invalid(
            "nothing to change was given: name at least one of --name, --description, --keyword, --example, --domain, "
            "--active and --inactive"
        )
    for name in {"keywords", "examples"} & changes.keys():
        changes[name] = tuple(word for word in changes[name] if word)
    settings = settings_of({"config": config, "data_dir": data_dir})
    path = _path(skill_id)
    answer = before = ask(settings, path)
    if before is not None:
        body = {each.name: before[each.name] for each in fields(Skill)} | changes
        answer = ask(settings, path, method="PUT", body=body, patience=PATIENCE_SECONDS)
    if answer is None:
        answer = from_catalogue(settings, lambda app: _changed(app, skill_id, changes))
    tell(answer, as_json, lambda told: _say_skill("Changed", told))


@skills.command()
@click.argument("skill_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@places
def remove(skill_id: str, yes: bool, as_json: bool, **flags: Any) -> None:
    """Remove a skill; the tools in it are sorted anew.

    What people have decided about tools in it goes with it. To keep that, and have nothing use the skill:
    toolscript skills edit ID --inactive
    """
    if not yes:
        _make_sure(skill_id)

    async def here(app: App) -> str:
        await app.skills.remove(skill_id)
        return ""

    answered(flags, here, _path(skill_id), method="DELETE")
    tell({"removed": skill_id}, as_json, lambda told: click.echo(f"Removed {printable(told['removed'])}."))


@skills.command()
@click.argument("tool_id", metavar="TOOL")
@click.argument("skill_ids", metavar="SKILL...", nargs=-1, required=True)
@places
def assign(tool_id: str, skill_ids: Sequence[str], as_json: bool, **flags: Any) -> None:
    """Say which skills a tool is in: one to three, the most fitting one first.

    No classifier takes that back, until it is released or a sync is forced.

    \b
    toolscript skills assign garden__inspect_hive bee_keeping
    toolscript skills assign github__create_issue issue_tracking source_control
    """

    async def here(app: App) -> Answer:
        from toolscript.surfaces.json.skills import build_tool_skills_response

        return build_tool_skills_response(await app.skills.assign(tool_id, skill_ids))

    question = {"method": "PUT", "body": {"skill_ids": list(skill_ids)}}
    tell(answered(flags, here, _tool_path(tool_id), **question), as_json, _say_assigned)


@skills.command()
@click.argument("tool_id", metavar="TOOL")
@places
def release(tool_id: str, as_json: bool, **flags: Any) -> None:
    """Give a tool back to the classifier, which sorts it at once.

    \b
    toolscript skills release garden__inspect_hive
    """

    async def here(app: App) -> Answer:
        from toolscript.surfaces.json.skills import build_tool_skills_response

        return build_tool_skills_response(await app.skills.release(tool_id))

    tell(answered(flags, here, _tool_path(tool_id), method="DELETE"), as_json, _say_assigned)


for command in (suggestions, approve, reject, merge, propose, export):
    skills.add_command(command)


async def _looked_up(app: App, skill_id: str) -> tuple[Answer, Answer]:
    from toolscript.surfaces.json.skills import build_skill_response, build_skill_tools_response

    skill = build_skill_response(await app.skills.get(skill_id))
    return skill, build_skill_tools_response(skill_id, await app.skills.tools(skill_id))


async def _changed(app: App, skill_id: str, changes: Mapping[str, Any]) -> Answer:
    from toolscript.surfaces.json.skills import build_skill_response

    before = (await app.skills.get(skill_id)).skill
    return build_skill_response(await app.skills.replace(skill_id, replace(before, **changes)))


def _path(skill_id: str) -> str:
    if skill_id in NO_IDS:
        raise NotFound(f"there is no skill {skill_id!r}: see toolscript skills list", details={"skill_id": skill_id})
    return f"{SKILLS}/{quote(skill_id, safe='', errors='replace')}"


def _tool_path(tool_id: str) -> str:
    return f"/api/v1/tools/{quote(tool_id, safe='', errors='replace')}/skills"


def _make_sure(skill_id: str) -> None:
    try:
        is_sure = click.confirm(f"Remove the skill {printable(skill_id)}, and sort its tools anew?", err=True)
    except click.Abort:
        is_sure = False
        click.echo(err=True)
    if not is_sure:
        raise Invalid("nothing was removed: --yes removes without asking")


def _show_skills(answer: Answer) -> None:
    rows = [
        (
            s["id"],
            s["name"] + ("" if s["is_active"] else "  (not in use)"),
            str(s["tool_count"]),
            s["parent_domain"] or "",
        )
        for s in answer["skills"]
    ]
    if rows:
        print_table(("Skill", "Name", "Tools", "Domain"), rows, right=["Tools"])
    else:
        click.echo("There are no skills: add one with toolscript skills add, or see toolscript skills propose.")


def _show_skill(answer: Answer) -> None:
    about = [
        ("Name", answer["name"] + ("" if answer["is_active"] else "  (not in use)")),
        ("Description", answer["description"]),
        ("Domain", answer["parent_domain"] or ""),
        ("Keywords", ", ".join(answer["keywords"])),
        ("Examples", ", ".join(answer["examples"])),
        ("Tools", str(answer["tool_count"])),
    ]
    print_table(("Skill", answer["id"]), [(name, text) for name, text in about if text])
    if answer["tools"]:
        click.echo()
        rows = [(t["id"], f"{t['confidence']:.2f}", _by(t), t["description"]) for t in answer["tools"]]
        print_table(("Tool", "Confidence", "Sorted by", "Description"), rows, right=["Confidence"])


def _by(assignment: Answer) -> str:
    known = {"human": "a person", "llm_auto": "language model", "embedding_auto": "embedding model"}
    told = known.get(assignment["origin"]) or str(assignment["origin"])
    return told if assignment["is_primary"] else f"{told}, not first"


def _show_found(answer: Sequence[Answer]) -> None:
    rows = [(s["id"], f"{s['score']:.2f}", str(s["tool_count"]), s["name"]) for s in answer]
    if rows:
        print_table(("Skill", "Score", "Tools", "Name"), rows, right=["Score", "Tools"])
    else:
        click.echo("No skills found matching query")
        click.echo("Try different words, or lower the threshold with --threshold.")


def _say_skill(done: str, answer: Answer) -> None:
    number = answer["tool_count"]
    click.echo(f"{done} {answer['id']}: {number} {'tool is' if number == 1 else 'tools are'} in it.")


def _say_assigned(answer: Answer) -> None:
    told = ", ".join(f"{a['skill_id']} ({_by(a)})" for a in answer["skills"])
    click.echo(printable(f"{answer['id']} is in {told or 'no skill: nothing fits, see toolscript skills suggestions'}"))
