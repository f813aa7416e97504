"""`toolscript skills suggestions` and what becomes of them; `toolscript skills propose`, which finds some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.catalog import SuggestionStatus
from toolscript.surfaces.cli.client.ask import answered, places, tell
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import printable

if TYPE_CHECKING:
    from toolscript.app.app import App

SUGGESTIONS = "/api/v1/skills/suggestions"
ALL = "all"
LARGEST_NUMBER = 2**31 - 1
# More than this many tools of a proposal are counted instead of named.
NAMED = 5

Answer = Mapping[str, Any]

number_argument = click.argument("number", metavar="N", type=click.IntRange(1, LARGEST_NUMBER))
reviewer = click.option("--by", "reviewed_by", metavar="NAME", help="Who decides; kept with the decision.")


@click.command()
@click.option(
    "--status",
    type=click.Choice([*(status.value for status in SuggestionStatus), ALL]),
    default=SuggestionStatus.PENDING.value,
    show_default=True,
    help="Only those that stand so, or all.",
)
@places
def suggestions(status: str, as_json: bool, **flags: Any) -> None:
    """The skills that tools were found to need, for a person to decide.

    Then: toolscript skills approve, reject or merge, with the number of the suggestion.

    \b
    toolscript skills suggestions
    toolscript skills suggestions --status all --json
    """
    wanted = None if status == ALL else SuggestionStatus(status)

    async def here(app: App) -> Answer:
        from toolscript.surfaces.json.skills import build_suggestions_response

        return build_suggestions_response(await app.skills.suggestions(wanted))

    answer = answered(flags, here, SUGGESTIONS, status=status)
    tell(answer, as_json, lambda told: _show_suggestions(told, status))


@click.command()
@number_argument
@click.option("--id", "skill_id", metavar="ID", help="Of the new skill; made from the name when not given.")
@click.option("--name", help="Instead of the suggested one.")
@click.option("--description", help="Instead of the suggested one.")
@reviewer
@places
def approve(number: int, as_json: bool, config: str | None, data_dir: str | None, **wanted: Any) -> None:
    """Make a suggestion a skill, and sort the tools that are in none anew.

    N is the number of the suggestion. Ends with 7 when it is decided already, or the id is taken.

    \b
    toolscript skills approve 3
    toolscript skills approve 3 --id bee_keeping --name "Bee Keeping" --by ada
    """

    async def here(app: App) -> Answer:
        from toolscript.surfaces.json.skills import build_skill_response

        return build_skill_response(await app.skills.approve(number, **wanted))

    places_ = {"config": config, "data_dir": data_dir}
    answer = answered(places_, here, f"{SUGGESTIONS}/{number}/approve", body=wanted)
    tell(answer, as_json, lambda told: click.echo(f"Added {told['id']}: {_tools(told['tool_count'])} in it."))


@click.command()
@number_argument
@reviewer
@places
def reject(number: int, reviewed_by: str | None, as_json: bool, **flags: Any) -> None:
    """Decline a suggestion: the same is not suggested for that tool again.

    N is the number of the suggestion. Ends with 7 when it is decided already.
    """

    async def here(app: App) -> Answer:
        from toolscript.surfaces.json.skills import build_suggestion_response

        return build_suggestion_response(await app.skills.reject(number, reviewed_by=reviewed_by))

    answer = answered(flags, here, f"{SUGGESTIONS}/{number}/reject", body={"reviewed_by": reviewed_by})
    tell(answer, as_json, lambda told: click.echo(f"Rejected {told['id']}, {printable(told['name'])}."))


@click.command()
@number_argument
@click.argument("skill_id", metavar="SKILL")
@reviewer
@places
def merge(number: int, skill_id: str, reviewed_by: str | None, as_json: bool, **flags: Any) -> None:
    """Put the tool of a suggestion into a skill that there is.

    N is the number of the suggestion, SKILL the id of the skill. Ends with 7 when it is decided already.

    \b
    toolscript skills merge 3 file_operations
    """

    async def here(app: App) -> Answer:
        from toolscript.surfaces.json.skills import build_suggestion_response

        return build_suggestion_response(await app.skills.merge(number, skill_id, reviewed_by=reviewed_by))

    body = {"skill_id": skill_id, "reviewed_by": reviewed_by}
    answer = answered(flags, here, f"{SUGGESTIONS}/{number}/merge", body=body)
    tell(answer, as_json, lambda told: _say_merged(told, skill_id))


@click.command()
@click.option("--count", type=int, metavar="N", help="Into how many groups tools are sorted; chosen when not given.")
@click.option("--waiting", "only_waiting", is_flag=True, help="Look only at tools that are in no skill.")
@click.option("--queue", is_flag=True, help="Put the proposals among the suggestions, to be approved or rejected.")
@places
def propose(count: int | None, only_waiting: bool, queue: bool, as_json: bool, **flags: Any) -> None:
    """Propose skills from the tools that there are.

    Tools are grouped by what they mean; a language model names the groups where one is configured, else their own
    words do. Nothing changes without --queue.

    \b
    toolscript skills propose --count 12
    toolscript skills propose --waiting --queue
    """
    wish = {"count": count, "only_waiting": only_waiting, "queue": queue}

    async def here(app: App) -> Answer:
        from toolscript.surfaces.json.skills import build_proposals_response

        return build_proposals_response(
            await app.propose_skills.propose(count=count, only_waiting=only_waiting, queue=queue)
        )

    answer = answered(flags, here, "/api/v1/skills/propose", body=wish)
    tell(answer, as_json, lambda told: _show_proposals(told, queue))


def _show_suggestions(answer: Answer, status: str) -> None:
    rows = [
        (str(s["id"]), s["name"], s["source_tool_id"] or "", s["status"], s["reviewed_by"] or "", s["description"])
        for s in answer["suggestions"]
    ]
    if rows:
        print_table(("N", "Name", "For", "Status", "By", "Description"), rows)
    else:
        click.echo("There are no suggestions." if status == ALL else f"There are no {status} suggestions.")


def _show_proposals(answer: Answer, queued: bool) -> None:
    rows = [
        (p["id"], p["name"], str(p["tool_count"]), f"{p['cohesion']:.2f}", p["nearest_skill"] or "", _some(p["tools"]))
        for p in answer["proposals"]
    ]
    if not rows:
        click.echo("There are no tools to propose skills for.")
        return
    print_table(("Skill", "Name", "Tools", "Cohesion", "There is", "Such as"), rows, right=("Tools", "Cohesion"))
    if queued:
        click.echo("\nWhat is new of these is among the suggestions: toolscript skills suggestions")


def _some(tools: list[str]) -> str:
    rest = len(tools) - NAMED
    return ", ".join(tools[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _say_merged(answer: Answer, skill_id: str) -> None:
    tool = answer["source_tool_id"]
    told = f"{tool} is in {skill_id} now." if tool else f"It is settled: {skill_id} serves, and it was for no one tool."
    click.echo(printable(f"Merged {answer['id']}, {answer['name']}. {told}"))


def _tools(number: int) -> str:
    return "1 tool is" if number == 1 else f"{number} tools are"
