"""Events of changes of servers: who added, started, stopped or restarted a server, and who logged in and out there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from toolscript.domain.audit import SERVER_EVENT
from toolscript.domain.redaction import redact_arguments, redact_text
from toolscript.domain.requests import current_request
from toolscript.domain.search import SearchReport
from toolscript.ports.observability import EventSink
from toolscript.services.support.search_events import MAX_NAME, record_event, record_search


class ServerChanges:
    """Records changes of servers that callers ask for, successful or not. What somebody writes into the configuration
    file is not among them: nobody knows who it was."""

    def __init__(self, events: EventSink) -> None:
        self._events = events

    @contextmanager
    def record(self, action: str, server: str, about: str = "") -> Iterator[None]:
        """Records the block as this action on the server, when it ends."""
        event = {"tool": action, "server": redact_text(server)[:MAX_NAME], "about": about}
        with record_search(
            partial(record_event, self._events), SERVER_EVENT, SearchReport(), lambda: event, current_request()
        ):
            yield


def describe_program(runs: str, variables: Sequence[str], *, is_command: bool) -> str:
    """What an added server runs, or its address, without secrets, and the names of its variables."""
    words = shlex.join(map(str, redact_arguments(shlex.split(runs)))) if is_command else redact_text(runs)
    return redact_text(f"{words} with {', '.join(variables)}" if variables else words)


def describe_login(user: str) -> str:
    return f"login of {user}" if user else "login of the installation"
