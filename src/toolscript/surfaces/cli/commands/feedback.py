"""`toolscript feedback`: what was learnt from use, explicit marks, and forgetting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.session import request_once
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import ListingGroup
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import confirm_or_raise, format_count, print_text, printable

if TYPE_CHECKING:
    from toolscript.app.app import App

PATH = "/api/v1/feedback"
# Embeds the requests and compares them with all tools.
TIMEOUT_SECONDS = 600.0

Answer = Mapping[str, Any]

tool_argument = click.argument("tool_id", metavar="TOOL", shell_complete=complete("tools"))


@click.group(cls=ListingGroup)
def feedback() -> None:
    """See, add and forget what the search has learnt from use. Without a command, lists it.

    When a caller searches and within five minutes calls one of the hits, the tool has served that request. Its vector
    moves a bounded step toward such requests, and away from requests that it was marked as wrong for, unless that makes
    past requests rank lower. TOOLSCRIPT_FEEDBACK=false switches all of this off, and brings back the original vectors.

    \b
    toolscript feedback
    toolscript feedback mark git__git_commit "put my changes into version control"
    toolscript feedback reset git__git_commit
    """


@feedback.command("list")
@options.catalogue
def list_() -> None:
    """List the tools that served requests or were marked, and how far their vectors moved.

    The cosine is that between the vector of the tool's text and the moved one: 1 is no step, 0.95 the largest.
    """

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.feedback import build_feedback_response

        return build_feedback_response(await app.tools.feedback.list(), enabled=app.settings.feedback)

    request_once(PATH, local, show=_show)


@feedback.command()
@tool_argument
@options.catalogue
def show(tool_id: str) -> None:
    """Show the requests that a tool has learnt from, newest first: the requests that it served, then the requests that
    it is wrong for."""

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.feedback import build_tool_feedback_response

        return build_tool_feedback_response(await app.tools.feedback.get(tool_id))

    def show_tool(answer: Answer) -> None:
        _show({"enabled": True, "tools": [answer]})
        click.echo()
        for request in answer["requests"]:
            print_text(request)
        for request in answer["wrong_requests"]:
            print_text(f"wrong: {request}")

    request_once(_build_path(tool_id), local, show=show_tool)


@feedback.command()
@tool_argument
@click.argument("query", metavar="REQUEST")
@click.option("--wrong", "verdict", flag_value="wrong", help="The tool is wrong for this request.")
@click.option("--take-back", "verdict", flag_value="none", help="Take back your mark of this tool for this request.")
@options.catalogue
def mark(tool_id: str, query: str, verdict: str | None) -> None:
    """Mark a tool as right or wrong for a request.

    \b
    toolscript feedback mark git__git_commit "put my changes into version control"
    toolscript feedback mark git__git_log "put my changes into a commit" --wrong
    """
    useful = {None: True, "wrong": False, "none": None}[verdict]

    async def local(app: App) -> Answer:
        from toolscript.surfaces.callers import OWNER
        from toolscript.surfaces.json.feedback import build_mark_response

        changed = await app.tools.feedback.mark(OWNER, tool_id, query, useful=useful)
        if app.catalogue.sync.learning.is_on:  # this process ends before one in the background would
            await app.tools.feedback.apply()
        return build_mark_response(tool_id, query, useful=useful, changed=changed)

    def show_mark(answer: Answer) -> None:
        done = {True: "Recorded", False: "Recorded as wrong", None: "Taken back"}[answer["useful"]]
        click.echo(f"{done}: {printable(tool_id)}" if answer["changed"] else "There was no such mark.")

    body = {"tool_id": tool_id, "query": query, "useful": useful}
    request_once(PATH, local, show=show_mark, body=body)


@feedback.command()
@click.argument("tool_id", metavar="[TOOL]", required=False, shell_complete=complete("tools"))
@click.option("--key", metavar="NAME", help="Only what callers with this key recorded; empty: without a key.")
@options.yes
@options.catalogue
def reset(tool_id: str | None, key: str | None, yes: bool) -> None:
    """Forget what was learnt about a tool, or about all tools.

    Deletes the requests and brings back the original vectors. With --key, only what came from one caller.
    """
    if tool_id is None and not yes:
        of_key = "" if key is None else " for callers without a key" if not key else f" for the key {printable(key)}"
        confirm_or_raise(f"Forget the requests that all tools served{of_key}, and what was learnt from them?")

    async def local(app: App) -> Answer:
        return {"removed": await app.tools.feedback.reset(tool_id, key=key)}

    def show_reset(answer: Answer) -> None:
        count = answer["removed"]
        click.echo(f"Forgot {format_count(count, 'request')}")

    path = PATH if tool_id is None else _build_path(tool_id)
    request_once(path, local, show=show_reset, method="DELETE", timeout_seconds=TIMEOUT_SECONDS, key=key)


def _build_path(tool_id: str) -> str:
    return f"{PATH}/{quote(tool_id, safe='', errors='replace')}"


def _show(answer: Answer) -> None:
    columns: Columns = {
        "Tool": "tool_id",
        "Requests": "successes",
        "Wrong": "wrong",
        "Keys": lambda tool: ", ".join(f"{name or '(none)'} {count}" for name, count in tool["keys"].items()),
        "State": "state",
        "Cosine": lambda tool: "" if tool["cosine"] is None else f"{tool['cosine']:.3f}",
        "Reason": "reason",
    }
    print_table(columns, answer["tools"], "No tool has served a request that was recorded.")
    if not answer["enabled"]:
        click.echo(
            "Feedback is switched off (TOOLSCRIPT_FEEDBACK): nothing is recorded, and no step is applied.", err=True
        )
