"""`toolscript skills suggestions` and the decisions about them; `toolscript skills propose` makes new skills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from toolscript.domain.catalog import SuggestionStatus
from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.session import Local, ToJson, report_change_of_demo, request_once
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import format_count, printable
from toolscript.surfaces.json.skills import (
    build_proposals_response,
    build_skill_response,
    build_suggestion_response,
    build_suggestions_response,
)

SKILLS = "/api/v1/skills"
SUGGESTIONS = f"{SKILLS}/suggestions"
# Most changes classify tools again, with a language model if one is configured.
TIMEOUT_SECONDS = 600.0
ALL = "all"
MAX_NUMBER = 2**31 - 1
# A table row names this many tools of a proposal, and counts the others.
MAX_NAMED_TOOLS = 5

Answer = Mapping[str, Any]

number_argument = click.argument("number", metavar="N", type=click.IntRange(1, MAX_NUMBER))
reviewer = click.option("--by", "reviewed_by", metavar="NAME", help="Who decides; stored with the decision.")


def request(path: str, local: Local, to_json: ToJson | None = None, **more: Any) -> Any:
    """Sends the only request of a command, like `request_once`. Says so when it has changed the demo."""
    answer = request_once(path, local, to_json, timeout_seconds=TIMEOUT_SECONDS, **more)
    if "method" in more or "body" in more:
        report_change_of_demo()
    return answer


@click.command()
@click.option(
    "--status",
    type=click.Choice([*(status.value for status in SuggestionStatus), ALL]),
    default=SuggestionStatus.PENDING.value,
    show_default=True,
    help="Only suggestions with this status, or all.",
)
@options.catalogue
def suggestions(status: str) -> None:
    """List the skills that are suggested for tools, for a person to decide.

    Decide with toolscript skills approve, reject or merge, and the number of the suggestion.

    \b
    toolscript skills suggestions
    toolscript skills suggestions --status all --json
    """
    wanted = None if status == ALL else SuggestionStatus(status)
    request(
        SUGGESTIONS,
        lambda app: app.catalogue.skills.suggestions(wanted),
        build_suggestions_response,
        show=lambda answer: _show_suggestions(answer, status),
        status=status,
    )


@click.command()
@number_argument
@click.option("--id", "skill_id", metavar="ID", help="Id of the new skill; made from its name by default.")
@click.option("--name", help="Name instead of the suggested one.")
@click.option("--description", help="Description instead of the suggested one.")
@reviewer
@options.catalogue
def approve(number: int, **body: Any) -> None:
    """Make a suggestion a skill, and classify again the tools that are in no skill.

    N is the number of the suggestion. Exits with 7 when it is already decided, or the id already exists.

    \b
    toolscript skills approve 3
    toolscript skills approve 3 --id bee_keeping --name "Bee Keeping" --by ada
    """
    request(
        f"{SUGGESTIONS}/{number}/approve",
        lambda app: app.catalogue.skills.approve(number, **body),
        build_skill_response,
        show=lambda skill: print_skill("Added", skill),
        body=body,
    )


@click.command()
@number_argument
@reviewer
@options.catalogue
def reject(number: int, **body: Any) -> None:
    """Reject a suggestion: it is not made for that tool again.

    N is the number of the suggestion. Exits with 7 when it is already decided.
    """
    request(
        f"{SUGGESTIONS}/{number}/reject",
        lambda app: app.catalogue.skills.reject(number, **body),
        build_suggestion_response,
        show=lambda rejected: click.echo(f"Rejected {rejected['id']}, {printable(rejected['name'])}."),
        body=body,
    )


@click.command()
@number_argument
@click.argument("skill_id", metavar="SKILL", shell_complete=complete("skills"))
@reviewer
@options.catalogue
def merge(number: int, skill_id: str, **review: Any) -> None:
    """Assign the tool of a suggestion to an existing skill instead.

    N is the number of the suggestion, SKILL the id of the skill. Exits with 7 when it is already decided.

    \b
    toolscript skills merge 3 file_operations
    """
    request(
        f"{SUGGESTIONS}/{number}/merge",
        lambda app: app.catalogue.skills.merge(number, skill_id, **review),
        build_suggestion_response,
        show=lambda answer: _print_merged(answer, skill_id),
        body={"skill_id": skill_id, **review},
    )


@click.command()
@click.option("--count", type=int, metavar="N", help="Number of groups; chosen automatically by default.")
@click.option("--waiting", "only_waiting", is_flag=True, help="Use only tools that are in no skill.")
@click.option("--queue", is_flag=True, help="Add the proposals to the suggestions, to be approved or rejected.")
@options.catalogue
def propose(**body: Any) -> None:
    """Propose new skills for the tools of the catalogue.

    Tools are grouped by meaning. A language model names the groups if one is configured; otherwise the names are made
    from the tools' own words. Nothing changes without --queue.

    \b
    toolscript skills propose --count 12
    toolscript skills propose --waiting --queue
    """
    request(
        f"{SKILLS}/propose",
        lambda app: app.catalogue.propose_skills.propose(**body),
        build_proposals_response,
        show=lambda answer: _show_proposals(answer, is_queued=body["queue"]),
        body=body,
    )


def print_skill(done: str, skill: Answer) -> None:
    """Prints what was done to a skill, and how many tools it has now."""
    click.echo(f"{done} {skill['id']}: {format_count(skill['tool_count'], 'tool')}.")


def _show_suggestions(answer: Answer, status: str) -> None:
    columns: Columns = {
        "N": lambda suggestion: str(suggestion["id"]),
        "Name": "name",
        "Tool": "source_tool_id",
        "Status": "status",
        "Decided by": "reviewed_by",
        "Description": "description",
    }
    empty = "No suggestions." if status == ALL else f"No {status} suggestions."
    print_table(columns, answer["suggestions"], empty)


def _show_proposals(answer: Answer, *, is_queued: bool) -> None:
    columns: Columns = {
        "Skill": "id",
        "Name": "name",
        "Tools": "tool_count",
        "Cohesion": "cohesion",
        "Nearest skill": "nearest_skill",
        "Examples": lambda proposal: _name_some(proposal["tools"]),
    }
    print_table(columns, answer["proposals"], empty="No tools to propose skills for.")
    if is_queued and answer["proposals"]:
        click.echo("\nNew proposals were added to the suggestions: toolscript skills suggestions")


def _name_some(tools: list[str]) -> str:
    rest = len(tools) - MAX_NAMED_TOOLS
    return ", ".join(tools[:MAX_NAMED_TOOLS]) + (f" and {rest} more" if rest > 0 else "")


def _print_merged(answer: Answer, skill_id: str) -> None:
    tool = answer["source_tool_id"]
    result = f"{tool} is in {skill_id} now." if tool else f"It was made for no single tool; {skill_id} is used instead."
    click.echo(printable(f"Merged {answer['id']}, {answer['name']}. {result}"))
