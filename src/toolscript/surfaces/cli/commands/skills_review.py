"""`toolscript skills suggestions` and the decisions about them; `toolscript skills propose`, which makes new ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolscript.domain.catalog import SuggestionStatus
from toolscript.surfaces.cli.client.session import read_settings, request_once
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import format_count, print_answer, printable
from toolscript.surfaces.json.skills import (
    build_proposals_response,
    build_skill_response,
    build_suggestion_response,
    build_suggestions_response,
)

if TYPE_CHECKING:
    from toolscript.app.app import App

SUGGESTIONS = "/api/v1/skills/suggestions"
# Most changes classify tools again, with a language model if one is configured.
TIMEOUT_SECONDS = 600.0
ALL = "all"
MAX_NUMBER = 2**31 - 1
# A table row names this many tools of a proposal, and counts the others.
MAX_NAMED_TOOLS = 5

Answer = Mapping[str, Any]
Result = TypeVar("Result")

number_argument = click.argument("number", metavar="N", type=click.IntRange(1, MAX_NUMBER))
reviewer = click.option("--by", "reviewed_by", metavar="NAME", help="Who decides; stored with the decision.")


def request(
    flags: Mapping[str, Any],
    path: str,
    call: Callable[[App], Awaitable[Result]],
    to_json: Callable[[Result], Any],
    **http: Any,
) -> Any:
    """The JSON of one request: of the gateway, or made from the result of the application's service."""

    async def local(app: App) -> Any:
        return to_json(await call(app))

    return request_once(read_settings(flags), path, local, timeout_seconds=TIMEOUT_SECONDS, **http)


@click.command()
@click.option(
    "--status",
    type=click.Choice([*(status.value for status in SuggestionStatus), ALL]),
    default=SuggestionStatus.PENDING.value,
    show_default=True,
    help="Only suggestions with this status, or all.",
)
@options.catalogue
def suggestions(status: str, as_json: bool, **flags: Any) -> None:
    """List the skills that are suggested for tools, for a person to decide.

    Decide with toolscript skills approve, reject or merge, and the number of the suggestion.

    \b
    toolscript skills suggestions
    toolscript skills suggestions --status all --json
    """
    wanted = None if status == ALL else SuggestionStatus(status)
    answer = request(
        flags, SUGGESTIONS, lambda app: app.skills.suggestions(wanted), build_suggestions_response, status=status
    )
    print_answer(answer, as_json, lambda _: _show_suggestions(answer, status))


@click.command()
@number_argument
@click.option("--id", "skill_id", metavar="ID", help="Id of the new skill; made from its name by default.")
@click.option("--name", help="Name instead of the suggested one.")
@click.option("--description", help="Description instead of the suggested one.")
@reviewer
@options.catalogue
def approve(number: int, as_json: bool, config: str | None, data_dir: str | None, **wanted: Any) -> None:
    """Make a suggestion a skill, and classify again the tools that are in no skill.

    N is the number of the suggestion. Exits with 7 when it is already decided, or the id already exists.

    \b
    toolscript skills approve 3
    toolscript skills approve 3 --id bee_keeping --name "Bee Keeping" --by ada
    """
    flags = {"config": config, "data_dir": data_dir}
    path = f"{SUGGESTIONS}/{number}/approve"
    answer = request(flags, path, lambda app: app.skills.approve(number, **wanted), build_skill_response, body=wanted)
    summary = f"Added {answer['id']}: {format_count(answer['tool_count'], 'tool')}."
    print_answer(answer, as_json, lambda _: click.echo(summary))


@click.command()
@number_argument
@reviewer
@options.catalogue
def reject(number: int, reviewed_by: str | None, as_json: bool, **flags: Any) -> None:
    """Reject a suggestion: it is not made for that tool again.

    N is the number of the suggestion. Exits with 7 when it is already decided.
    """
    path, body = f"{SUGGESTIONS}/{number}/reject", {"reviewed_by": reviewed_by}
    answer = request(flags, path, lambda app: app.skills.reject(number, **body), build_suggestion_response, body=body)
    print_answer(answer, as_json, lambda _: click.echo(f"Rejected {answer['id']}, {printable(answer['name'])}."))


@click.command()
@number_argument
@click.argument("skill_id", metavar="SKILL")
@reviewer
@options.catalogue
def merge(number: int, skill_id: str, reviewed_by: str | None, as_json: bool, **flags: Any) -> None:
    """Assign the tool of a suggestion to an existing skill instead.

    N is the number of the suggestion, SKILL the id of the skill. Exits with 7 when it is already decided.

    \b
    toolscript skills merge 3 file_operations
    """
    path, body = f"{SUGGESTIONS}/{number}/merge", {"skill_id": skill_id, "reviewed_by": reviewed_by}
    answer = request(
        flags,
        path,
        lambda app: app.skills.merge(number, skill_id, reviewed_by=reviewed_by),
        build_suggestion_response,
        body=body,
    )
    print_answer(answer, as_json, lambda _: _print_merged(answer, skill_id))


@click.command()
@click.option("--count", "groups", type=int, metavar="N", help="Number of groups; chosen automatically by default.")
@click.option("--waiting", "only_waiting", is_flag=True, help="Use only tools that are in no skill.")
@click.option("--queue", is_flag=True, help="Add the proposals to the suggestions, to be approved or rejected.")
@options.catalogue
def propose(groups: int | None, only_waiting: bool, queue: bool, as_json: bool, **flags: Any) -> None:
    """Propose new skills for the tools of the catalogue.

    Tools are grouped by meaning. A language model names the groups if one is configured; otherwise the names are made
    from the tools' own words. Nothing changes without --queue.

    \b
    toolscript skills propose --count 12
    toolscript skills propose --waiting --queue
    """
    wanted: dict[str, Any] = {"count": groups, "only_waiting": only_waiting, "queue": queue}
    path = "/api/v1/skills/propose"
    answer = request(
        flags, path, lambda app: app.propose_skills.propose(**wanted), build_proposals_response, body=wanted
    )
    print_answer(answer, as_json, lambda _: _show_proposals(answer, queue))


def _show_suggestions(answer: Answer, status: str) -> None:
    rows = [
        (str(s["id"]), s["name"], s["source_tool_id"] or "", s["status"], s["reviewed_by"] or "", s["description"])
        for s in answer["suggestions"]
    ]
    if rows:
        print_table(("N", "Name", "Tool", "Status", "Decided by", "Description"), rows)
    else:
        click.echo("No suggestions." if status == ALL else f"No {status} suggestions.")


def _show_proposals(answer: Answer, queued: bool) -> None:
    rows = [
        (
            p["id"],
            p["name"],
            str(p["tool_count"]),
            f"{p['cohesion']:.2f}",
            p["nearest_skill"] or "",
            _name_some(p["tools"]),
        )
        for p in answer["proposals"]
    ]
    if not rows:
        click.echo("No tools to propose skills for.")
        return
    columns = ("Skill", "Name", "Tools", "Cohesion", "Nearest skill", "Examples")
    print_table(columns, rows, right=("Tools", "Cohesion"))
    if queued:
        click.echo("\nNew proposals were added to the suggestions: toolscript skills suggestions")


def _name_some(tools: list[str]) -> str:
    rest = len(tools) - MAX_NAMED_TOOLS
    return ", ".join(tools[:MAX_NAMED_TOOLS]) + (f" and {rest} more" if rest > 0 else "")


def _print_merged(answer: Answer, skill_id: str) -> None:
    tool = answer["source_tool_id"]
    result = f"{tool} is in {skill_id} now." if tool else f"It was made for no single tool; {skill_id} is used instead."
    click.echo(printable(f"Merged {answer['id']}, {answer['name']}. {result}"))
