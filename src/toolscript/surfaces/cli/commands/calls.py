"""`toolscript calls`: who called a tool and how that went, and who searched for what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.gateway import is_gateway_running, send_to_gateway
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import print_answer, print_note

if TYPE_CHECKING:
    from toolscript.settings import Settings

PATH = "/api/v1/calls"
KINDS = ("calls", "searches", "refusals", "servers")
MAX_LIMIT = 1000

Answer = Mapping[str, Any]


@click.command()
@click.option("--tool", metavar="TOOL", help="Only calls of this tool.", shell_complete=complete("tools"))
@click.option("--server", metavar="NAME", help="Only calls of this server's tools.", shell_complete=complete("servers"))
@click.option("--caller", metavar="NAME", help="Only of this caller: a key's name, oauth:SUBJECT, owner, an address.")
@click.option("--outcome", metavar="CODE", help="Only with this outcome: ok, error for every error, or an error code.")
@click.option("--since", metavar="TIME", help="Only from this time on: 2026-07-28T12:00 (UTC), or 30m, 12h, 7d ago.")
@click.option("--until", metavar="TIME", help="Only before this time.")
@click.option("--kind", type=click.Choice(KINDS), default="calls", show_default=True, help="What to list.")
@click.option("--summary", type=click.Choice(["tool", "server"]), help="Number, errors and times by tool or server.")
@options.limit(MAX_LIMIT, 50, "events")
@click.option("--page", "page_token", metavar="TOKEN", help="The next page, with the token that the one before named.")
@options.store
def calls(summary: str | None, limit: int, page_token: str | None, **filters: Any) -> None:
    """List who called which tool, newest first.

    Each call has its time, caller, tool, outcome and milliseconds, and a digest of its arguments. With
    TOOLSCRIPT_AUDIT_ARGUMENTS=redacted it has the arguments without secrets. --kind lists other events: searches for
    tools, refused requests (without a valid key, or without the scope), or changes of servers and logins. Reads the
    audit of the running gateway, or of the data folder if no gateway runs.

    \b
    toolscript calls --since 1h --outcome error
    toolscript calls --server github --caller ci --limit 200
    toolscript calls --summary tool --since 7d
    toolscript calls --kind searches
    toolscript calls --kind refusals --since 1d
    toolscript calls --kind servers
    """
    settings = read_settings()
    has_gateway = is_gateway_running(settings)

    def request(**paging: Any) -> Answer:
        if not has_gateway:
            return asyncio.run(_read(settings, summary, filters, **paging))
        more = {"by": summary} if summary else paging
        answer: Answer = send_to_gateway(settings, f"{PATH}/summary" if summary else PATH, **filters, **more)
        return answer

    answer = request() if summary else _read_pages(request, limit, page_token)
    print_answer(answer, _show_summary if summary else _SHOWN[filters["kind"]])


def _read_pages(request: Callable[..., Answer], limit: int, page_token: str | None) -> Answer:
    """As many events as the limit: a page can be short where few events match."""
    events: list[Any] = []
    while True:
        page = request(limit=limit - len(events), page_token=page_token)
        events += page["events"]
        page_token = page["next_page_token"]
        if page_token is None or len(events) >= limit:
            return {"events": events, "next_page_token": page_token}


async def _read(
    settings: Settings,
    summary: str | None,
    filters: Mapping[str, str | None],
    limit: int = MAX_LIMIT,
    page_token: str | None = None,
) -> Answer:
    """The same answer from the store. Raises InvalidArguments, NotFound and Unavailable."""
    from toolscript.app.audit import open_call_log
    from toolscript.domain.audit import AuditKind, AuditQuery
    from toolscript.services.support.call_log import parse_page_token
    from toolscript.surfaces.json.calls import build_calls_response, build_summary_response

    async with open_call_log(settings) as log:
        query = AuditQuery(
            AuditKind(filters["kind"] or "calls"),
            filters["tool"],
            filters["server"],
            filters["caller"],
            filters["outcome"],
            log.parse_time(filters["since"], "--since"),
            log.parse_time(filters["until"], "--until"),
            parse_page_token(page_token),
            limit,
        )
        if summary:
            return build_summary_response(await log.summarize(query, by_server=summary == "server"))
        return build_calls_response(await log.list_events(query))


def _show_calls(answer: Answer) -> None:
    columns: Columns = {
        "Time": _format_time,
        "Tool": "tool",
        "Caller": "caller",
        "Outcome": "outcome",
        "ms": "ms",
        "Bytes": "bytes",
        "Surface": "surface",
        "Arguments": "arguments",
        "Request": "request_id",
    }
    optional = ["Request", "Surface"]
    if any(each["called_by"] for each in answer["events"]):
        columns = {**columns, "Called by": "called_by"}
        optional.append("Called by")
    print_table(columns, answer["events"], "No calls.", shortened=["Arguments"], optional=optional)
    _show_next(answer)


def _show_searches(answer: Answer) -> None:
    columns: Columns = {
        "Time": _format_time,
        "Search": "tool",
        "Caller": "caller",
        "Outcome": "outcome",
        "ms": "ms",
        "Hits": "hits",
        "Surface": "surface",
        "Query": "query",
    }
    print_table(columns, answer["events"], "No searches.", shortened=["Query"], optional=["Surface"])
    _show_next(answer)


def _show_refusals(answer: Answer) -> None:
    columns: Columns = {
        "Time": _format_time,
        "Request": "tool",
        "Caller": "caller",
        "Outcome": "outcome",
        "Surface": "surface",
        "Reason": "reason",
    }
    print_table(columns, answer["events"], "No refused requests.", shortened=["Reason"], optional=["Surface"])
    _show_next(answer)


def _show_changes(answer: Answer) -> None:
    columns: Columns = {
        "Time": _format_time,
        "Change": "tool",
        "Server": "server",
        "Caller": "caller",
        "Outcome": "outcome",
        "Surface": "surface",
        "About": "about",
    }
    print_table(columns, answer["events"], "No changes of servers.", shortened=["About"], optional=["Surface"])
    _show_next(answer)


_SHOWN = {"calls": _show_calls, "searches": _show_searches, "refusals": _show_refusals, "servers": _show_changes}


def _show_summary(answer: Answer) -> None:
    columns: Columns = {"Name": "name", "Calls": "calls", "Errors": "errors", "p50 ms": "p50_ms", "p95 ms": "p95_ms"}
    print_table(columns, answer["rows"], "No calls.")


def _show_next(answer: Answer) -> None:
    if token := answer["next_page_token"]:
        print_note(f"for the next page, add --page {token}", label="more:")


def _format_time(event: Answer) -> str:
    return str(event["time"])[:19].replace("T", " ")
