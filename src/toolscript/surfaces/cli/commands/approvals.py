"""`toolscript approvals`: calls that wait for a person, because their caller's client cannot ask."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.surfaces.cli.client.session import CommandSession, Local, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import ListingGroup
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import print_answer, printable

if TYPE_CHECKING:
    from toolscript.app.app import App

PATH = "/api/v1/approvals"

Answer = Mapping[str, Any]

id_argument = click.argument("call_id", metavar="ID")


@click.group(cls=ListingGroup)
def approvals() -> None:
    """Decide about calls that wait for approval. Without a command, lists them.

    Where a call needs a person's approval and the caller's client cannot ask, the call waits for 15 minutes. An
    approved call can be repeated once, within 10 minutes, by the same caller with the same arguments. At another
    gateway (--gateway) decisions need a key with the scope admin.

    \b
    toolscript approvals
    toolscript approvals approve k7m2xq
    toolscript approvals decline k7m2xq
    """


@approvals.command("list")
@options.store
def list_() -> None:
    """List the calls that wait, the oldest first."""

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.access import build_pending_calls_response

        return build_pending_calls_response(await app.tools.approvals.pending.list_waiting())

    print_answer(_request(PATH, local), _show)


@approvals.command()
@id_argument
@options.store
def approve(call_id: str) -> None:
    """Let the caller repeat a call once.

    Exits with 4 when no call with this id waits, and with 7 when it was decided already.
    """
    _decide(call_id, "approve")


@approvals.command()
@id_argument
@options.store
def decline(call_id: str) -> None:
    """Refuse a call: its caller learns that when it repeats the call.

    Exits with 4 when no call with this id waits, and with 7 when it was decided already.
    """
    _decide(call_id, "decline")


def _decide(call_id: str, verb: str) -> None:
    async def local(app: App) -> Answer:
        from toolscript.domain.access import PendingState
        from toolscript.surfaces.json.access import build_pending_call_response

        state = PendingState.APPROVED if verb == "approve" else PendingState.DECLINED
        return build_pending_call_response(await app.tools.approvals.pending.decide(call_id, state, decider=None))

    path = f"{PATH}/{quote(call_id, safe='', errors='replace')}/{verb}"
    print_answer(_request(path, local, method="POST"), _show_decision)


def _request(path: str, local: Local, **http: Any) -> Answer:
    settings = read_settings()
    # Its token says that the owner of the data folder asks: without one the gateway takes a request for an agent's.
    tenant = None if settings.gateway_url else settings.tenant

    async def use(session: CommandSession) -> Answer:
        answer: Answer = await session.request(path, local, tenant=tenant, **http)
        return answer

    return run_in_session(settings, use, with_catalogue=False)


def _show(answer: Answer) -> None:
    columns: Columns = {
        "Id": "id",
        "Tool": "tool_id",
        "Waits": lambda call: _format_age(call["created_at"]),
        "Caller": "caller",
        "Profile": "profile",
        # Line ends are of the JSON only: those of its strings are escaped.
        "Arguments": lambda call: re.sub(r"\n *", " ", call["arguments"]),
    }
    print_table(columns, answer["calls"], "No call waits for approval.")


def _show_decision(answer: Answer) -> None:
    tool = printable(answer["tool_id"])
    if answer["state"] == "approved":
        click.echo(f"Approved {answer['id']}: {tool} can be repeated once, within 10 minutes.")
    else:
        click.echo(f"Declined {answer['id']}: {tool} is not called.")


def _format_age(time: str) -> str:
    seconds = max(0, round((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()))
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min"  # noqa: PLR2004
