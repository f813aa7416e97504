"""Responses about servers and their logs as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscript.configuration.snippets import PlannedAddition
    from toolscript.domain.logins import LoginState
    from toolscript.domain.servers import LogLine, ServerStatus


def build_servers_response(
    statuses: Sequence[ServerStatus], configuration_error: str | None, configuration_warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """Builds the response of `GET /servers` and `toolscript list-servers --json`."""
    return {
        "servers": [build_server_response(status) for status in statuses],
        "configurationError": configuration_error,
        "configurationWarnings": list(configuration_warnings),
    }


def build_server_response(s: ServerStatus) -> dict[str, Any]:
    """Builds one server of that response, which is also that of starting and stopping it."""
    return {
        "name": s.name,
        "transport": s.transport.value,
        "state": s.state.value,
        "reason": s.reason,
        "tools": s.items.get("tool", 0),
        "prompts": s.items.get("prompt", 0),
        "resources": s.items.get("resource", 0),
        "problems": list(s.problems),
        "attempts": s.attempts,
        "retryInSeconds": s.retry_in_seconds,
        "callsPausedSeconds": s.calls_paused_seconds,
        "needsLogin": s.needs_login,
        "loginPerUser": s.login_per_user,
        "restarts": s.restarts,
        "restartReason": s.restart_reason,
        "recentCalls": [{"ms": call.ms, "ok": call.is_ok} for call in s.recent_calls],
        "logLines": s.log_lines,
    }


def build_login_response(state: LoginState) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/servers/{name}/login`, and one server of `GET /api/v1/own-logins`."""
    return {
        "server": state.server,
        "loggedIn": state.login is not None,
        "issuer": state.login.issuer if state.login else None,
        "scope": state.login.scope if state.login else None,
        "problem": state.problem,
    }


def build_log_response(server: str, lines: Sequence[LogLine]) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/servers/{name}/log` and `toolscript servers log --json`."""
    return {
        "server": server,
        "lines": [
            {
                "time": datetime.fromtimestamp(line.time, UTC).isoformat(timespec="milliseconds"),
                "source": line.source.value,
                "text": line.text,
            }
            for line in lines
        ],
    }


def build_snippet_response(addition: PlannedAddition, *, added: bool) -> dict[str, Any]:
    """Builds the response of `POST /api/v1/servers` and `toolscript servers add --json`."""
    return {
        "file": str(addition.file),
        "servers": [
            {
                "name": server.name,
                "transport": server.transport.value if server.transport else None,
                "runs": server.runs,
                "variables": list(server.variables),
                "cwd": server.cwd,
                "envFile": server.env_file,
                "problem": server.problem,
                "warnings": list(server.warnings),
            }
            for server in addition.servers
        ],
        "added": added,
    }
