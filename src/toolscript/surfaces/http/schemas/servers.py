"""Responses about servers and their logs."""

from __future__ import annotations

from pydantic import Field

from toolscript.domain.servers import LogSource, ServerState, Transport
from toolscript.surfaces.http.schemas.models import CamelResponseModel, RequestModel, ResponseModel

MAX_SNIPPET = 65_536


class RecentCallResponse(ResponseModel):
    """A call that the server answered, or did not."""

    ms: float = Field(description="Milliseconds from the request to the server's answer.")
    ok: bool = Field(description="False for errors of the server or the tool, and for calls that took too long.")


class ServerResponse(CamelResponseModel):
    """A server behind the gateway."""

    name: str
    transport: Transport
    state: ServerState = Field(
        description="`connecting`: still starting, no attempt has failed. `failed`: the last attempt failed, and it is "
        "tried again. `asleep`: not running, and its tools are in the catalogue; the next call starts it. "
        "`stopped`: somebody stopped it, and calls are refused until somebody starts it."
    )
    reason: str | None = Field(description="Why it is not ready.")
    tools: int
    prompts: int
    resources: int
    problems: list[str] = Field(description="Items of the server that cannot be used, and why.")
    attempts: int = Field(description="Number of connection attempts.")
    retry_in_seconds: float | None = Field(
        description="Seconds until a failed server is tried again; 0 while it is being tried. Null in other states."
    )
    calls_paused_seconds: float | None = Field(
        description="Time until a call is tried, while calls are refused because the server kept failing."
    )
    needs_login: bool = Field(description="Whether `toolscript login` makes it usable.")
    login_per_user: bool = Field(description="Whether calls of a named caller use that caller's own login.")
    restarts: int = Field(
        description="How often it was connected again after it was lost, or on request, since the gateway started."
    )
    restart_reason: str | None = Field(description="Why it was restarted the last time.")
    recent_calls: list[RecentCallResponse] = Field(description="Its last calls, up to 40, the oldest first.")
    log_lines: int = Field(
        description="Number of lines in its log since the gateway started: when it grows, there is something to read."
    )


class ServerListResponse(CamelResponseModel):
    """All servers behind the gateway."""

    servers: list[ServerResponse]
    configuration_error: str | None = Field(description="Why the last change of the configuration was not applied.")
    configuration_warnings: list[str] = Field(description="What has no effect, such as a pinned tool that is misspelt.")


class LogLineResponse(ResponseModel):
    """A line of a server's log."""

    time: str = Field(description="When it was written (UTC).")
    source: LogSource = Field(
        description="`server`: the server's program wrote it to its standard error, or the server sent it as a log "
        "message, which begins with its level in brackets. `gateway`: the gateway noted it."
    )
    text: str = Field(description="At most 1000 characters, without secrets of the configuration.")


class ServerLogResponse(ResponseModel):
    """The latest lines of a server's log."""

    server: str
    lines: list[LogLineResponse] = Field(description="Up to 200, the oldest first.")


class SnippetRequest(RequestModel):
    """A snippet of a server's documentation."""

    snippet: str = Field(
        max_length=MAX_SNIPPET,
        description="JSON: an object with `mcpServers` (or `servers`), entries by name, or a single entry.",
        examples=['{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}'],
    )
    name: str | None = Field(default=None, max_length=200, description="The name of a server that is a single entry.")


class PlannedServerResponse(CamelResponseModel):
    """A server of the snippet."""

    name: str
    transport: Transport | None = Field(description="Null if the entry has a problem.")
    runs: str = Field(description="The command line that the gateway will run, or the address that it will connect to.")
    variables: list[str] = Field(description="Names of its variables and headers, without their values.")
    cwd: str | None = Field(description="The folder that the command runs in, as the snippet has it.")
    env_file: str | None = Field(description="The file with more variables, as the snippet has it.")
    problem: str | None = Field(description="Why it cannot be added.")
    warnings: list[str] = Field(description="What has to be looked at, such as a placeholder instead of a token.")


class SnippetResponse(ResponseModel):
    """What the snippet adds to the configuration."""

    file: str = Field(description="The configuration file.")
    servers: list[PlannedServerResponse]
    added: bool = Field(description="Whether the servers are in the file now.")


class LoginStateResponse(CamelResponseModel):
    """Whether there is a login at a server."""

    server: str
    logged_in: bool
    issuer: str | None = Field(description="The authorization server of the login.")
    scope: str | None = Field(description="The scopes that it granted, between spaces.")
    problem: str | None = Field(description="Why the login cannot be read.")


class OwnLoginsResponse(ResponseModel):
    """The caller's own logins."""

    user: str | None = Field(
        description="Whose logins these are: the name of the key, or the token's subject. Null for callers without one."
    )
    servers: list[LoginStateResponse] = Field(description="Every server with a login per user that the caller may use.")


class LogoutResponse(ResponseModel):
    """A login that was removed."""

    server: str
    revoked: bool = Field(description="Whether the authorization server has revoked the tokens, too.")


class LoginResponse(ResponseModel):
    """A login that waits for a person."""

    server: str
    url: str = Field(description="The address to open in the same browser.")
    host: str = Field(description="Where it leads, for people to look at.")
