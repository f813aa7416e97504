"""Responses about servers and their logs as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict

from toolscript.domain.servers import LogLine, LogSource, ServerState, ServerStatus, Transport
from toolscript.surfaces.json.definitions import format_time

if TYPE_CHECKING:
    from toolscript.configuration.snippets import PlannedAddition
    from toolscript.domain.logins import LoginState


class RecentCallResponse(TypedDict):
    """A call that the server answered, or did not."""

    ms: Annotated[float, "Milliseconds from the request to the server's answer."]
    ok: Annotated[bool, "False for errors of the server or the tool, and for calls that took too long."]


class ServerResponse(TypedDict):
    """A server behind the gateway."""

    name: str
    transport: Transport
    state: Annotated[
        ServerState,
        "`connecting`: still starting, no attempt has failed. `failed`: the last attempt failed, and it is "
        "tried again. `asleep`: not running, and its tools are in the catalogue; the next call starts it. "
        "`stopped`: somebody stopped it, and calls are refused until somebody starts it.",
    ]
    reason: Annotated[str | None, "Why it is not ready."]
    tools: int
    prompts: int
    resources: int
    agentSkills: int
    problems: Annotated[list[str], "Items of the server that cannot be used, and why."]
    attempts: Annotated[int, "Number of connection attempts."]
    retryInSeconds: Annotated[
        float | None, "Seconds until a failed server is tried again; 0 while it is being tried. Null in other states."
    ]
    callsPausedSeconds: Annotated[
        float | None, "Time until a call is tried, while calls are refused because the server kept failing."
    ]
    needsLogin: Annotated[bool, "Whether `toolscript login` makes it usable."]
    loginPerUser: Annotated[bool, "Whether calls of a named caller use that caller's own login."]
    sandbox: Annotated[
        str | None, "What keeps its program apart from the machine, such as `bwrap, no network`. Null: nothing does."
    ]
    restarts: Annotated[
        int, "How often it was connected again after it was lost, or on request, since the gateway started."
    ]
    restartReason: Annotated[str | None, "Why it was restarted the last time."]
    recentCalls: Annotated[list[RecentCallResponse], "Its last calls, up to 40, the oldest first."]
    logLines: Annotated[
        int, "Number of lines in its log since the gateway started: when it grows, there is something to read."
    ]


class ServerListResponse(TypedDict):
    """All servers behind the gateway."""

    servers: list[ServerResponse]
    configurationError: Annotated[str | None, "Why the last change of the configuration was not applied."]
    configurationWarnings: Annotated[list[str], "What has no effect, such as a pinned tool that is misspelt."]


class LogLineResponse(TypedDict):
    """A line of a server's log."""

    time: Annotated[str, "When it was written (UTC)."]
    source: Annotated[
        LogSource,
        "`server`: the server's program wrote it to its standard error, or the server sent it as a log "
        "message, which begins with its level in brackets. `gateway`: the gateway noted it.",
    ]
    text: Annotated[str, "At most 1000 characters, without secrets of the configuration."]


class ServerLogResponse(TypedDict):
    """The latest lines of a server's log."""

    server: str
    lines: Annotated[list[LogLineResponse], "Up to 200, the oldest first."]


class PlannedServerResponse(TypedDict):
    """A server of the snippet."""

    name: str
    transport: Annotated[Transport | None, "Null if the entry has a problem."]
    runs: Annotated[str, "The command line that the gateway will run, or the address that it will connect to."]
    variables: Annotated[list[str], "Names of its variables and headers, without their values."]
    cwd: Annotated[str | None, "The folder that the command runs in, as the snippet has it."]
    envFile: Annotated[str | None, "The file with more variables, as the snippet has it."]
    sandbox: Annotated[str | None, "What will keep its program apart from the machine."]
    problem: Annotated[str | None, "Why it cannot be added."]
    warnings: Annotated[list[str], "What has to be looked at, such as a placeholder instead of a token."]


class SnippetResponse(TypedDict):
    """What the snippet adds to the configuration."""

    file: Annotated[str, "The configuration file."]
    servers: list[PlannedServerResponse]
    added: Annotated[bool, "Whether the servers are in the file now."]


class LoginStateResponse(TypedDict):
    """Whether there is a login at a server."""

    server: str
    loggedIn: bool
    issuer: Annotated[str | None, "The authorization server of the login."]
    scope: Annotated[str | None, "The scopes that it granted, between spaces."]
    problem: Annotated[str | None, "Why the login cannot be read."]


class OwnLoginsResponse(TypedDict):
    """The caller's own logins."""

    user: Annotated[
        str | None, "Whose logins these are: the name of the key, or the token's subject. Null for callers without one."
    ]
    servers: Annotated[list[LoginStateResponse], "Every server with a login per user that the caller may use."]


class LogoutResponse(TypedDict):
    """A login that was removed."""

    server: str
    revoked: Annotated[bool, "Whether the authorization server has revoked the tokens, too."]


class LoginResponse(TypedDict):
    """A login that waits for a person."""

    server: str
    url: Annotated[str, "The address to open in the same browser."]
    host: Annotated[str, "Where it leads, for people to look at."]


def build_servers_response(
    statuses: Sequence[ServerStatus], configuration_error: str | None, configuration_warnings: Sequence[str] = ()
) -> ServerListResponse:
    """Builds the response of `GET /servers` and `toolscript list-servers --json`."""
    return {
        "servers": [build_server_response(status) for status in statuses],
        "configurationError": configuration_error,
        "configurationWarnings": list(configuration_warnings),
    }


def build_server_response(s: ServerStatus) -> ServerResponse:
    """Builds one server of that response, which is also that of starting and stopping it."""
    return {
        "name": s.name,
        "transport": s.transport,
        "state": s.state,
        "reason": s.reason,
        "tools": s.items.get("tool", 0),
        "prompts": s.items.get("prompt", 0),
        "resources": s.items.get("resource", 0),
        "agentSkills": s.items.get("agent_skill", 0),
        "problems": list(s.problems),
        "attempts": s.attempts,
        "retryInSeconds": s.retry_in_seconds,
        "callsPausedSeconds": s.calls_paused_seconds,
        "needsLogin": s.needs_login,
        "loginPerUser": s.login_per_user,
        "sandbox": s.sandbox,
        "restarts": s.restarts,
        "restartReason": s.restart_reason,
        "recentCalls": [{"ms": call.ms, "ok": call.is_ok} for call in s.recent_calls],
        "logLines": s.log_lines,
    }


def build_login_response(state: LoginState) -> LoginStateResponse:
    """Builds the response of `GET /api/v1/servers/{name}/login`, and one server of `GET /api/v1/own-logins`."""
    return {
        "server": state.server,
        "loggedIn": state.login is not None,
        "issuer": state.login.issuer if state.login else None,
        "scope": state.login.scope if state.login else None,
        "problem": state.problem,
    }


def build_log_response(server: str, lines: Sequence[LogLine]) -> ServerLogResponse:
    """Builds the response of `GET /api/v1/servers/{name}/log` and `toolscript servers log --json`."""
    return {
        "server": server,
        "lines": [
            {"time": format_time(line.time, "milliseconds"), "source": line.source, "text": line.text} for line in lines
        ],
    }


def build_snippet_response(addition: PlannedAddition, *, added: bool) -> SnippetResponse:
    """Builds the response of `POST /api/v1/servers` and `toolscript servers add --json`."""
    return {
        "file": str(addition.file),
        "servers": [
            {
                "name": server.name,
                "transport": server.transport,
                "runs": server.runs,
                "variables": list(server.variables),
                "cwd": server.cwd,
                "envFile": server.env_file,
                "sandbox": server.sandbox,
                "problem": server.problem,
                "warnings": list(server.warnings),
            }
            for server in addition.servers
        ],
        "added": added,
    }
