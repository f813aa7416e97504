"""Responses about the audit."""

from __future__ import annotations

from pydantic import Field

from toolscript.surfaces.http.schemas.models import ResponseModel


class AuditEventResponse(ResponseModel):
    """A call of a tool, a search for tools, a refused request, or a change of a server."""

    id: str
    time: str = Field(description="When it ended, in UTC.")
    tool: str = Field(
        description="`server__tool`; of a program that was run `run_code`; of a search "
        "its type, such as `tools.search`; of a refusal method and path; of a change of a server `add`, `start`, "
        "`stop`, `restart`, `log in` or `log out`."
    )
    server: str = Field(description="Empty for a search, a program, and a tool that does not exist.")
    caller: str = Field(description="The name of the key, `oauth:SUBJECT`, `owner`, or the client's address.")
    profile: str
    surface: str = Field(description="`http`, `mcp` or `cli`.")
    outcome: str = Field(description="`ok`, or the error code.")
    ms: float
    request_id: str = Field(description="That of the request: a program and all that it calls have the same.")
    called_by: str | None = Field(
        default=None,
        description="The program that called: `run_code`, or `workflows__NAME`; null if there is none.",
    )
    bytes: int | None = Field(default=None, description="Size of the result of a call.")
    arguments: str | None = Field(
        default=None, description="A digest of the arguments of a call, or them without secrets: see the settings."
    )
    hits: int | None = Field(default=None, description="Number of results of a search.")
    query: str | None = Field(default=None, description="The words of a search, without secrets.")
    reason: str | None = Field(default=None, description="Why a request was refused.")
    about: str | None = Field(
        default=None,
        description="Of a server that was added, the command or address without secrets; of a login, whose it is.",
    )


class CallListResponse(ResponseModel):
    """Calls, searches, refused requests or changes of servers, newest first."""

    events: list[AuditEventResponse]
    next_page_token: str | None = Field(
        description="For the next page, with the same filters; null at the end. A page can be short and not the last."
    )


class CallSummaryResponse(ResponseModel):
    """The calls of a tool or a server."""

    name: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float


class CallSummaryListResponse(ResponseModel):
    """Calls by tool or server, the most used first: those of the newest 10 000 events that match."""

    rows: list[CallSummaryResponse]
