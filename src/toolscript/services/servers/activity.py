"""What a server has done since the gateway started: its log, the times of its calls, its restarts. It outlives the
server's connections and is bounded, whatever the server writes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from toolscript.domain.servers import LogLine, LogSource, RecentCall, ServerStatus

MAX_LINES = 200
MAX_CHARACTERS = 64 * 1024
"""Of all lines of one server together."""
MAX_CALLS = 40


class ServerActivity:
    """The latest log lines and calls of one server, and how often it was restarted."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lines: deque[LogLine] = deque()
        self._characters = 0
        self._line_count = 0
        self._calls: deque[RecentCall] = deque(maxlen=MAX_CALLS)
        self._restarts = 0
        self._restart_reason: str | None = None
        self._lost_because: str | None = None

    @property
    def lines(self) -> Sequence[LogLine]:
        """The latest lines of its log, the oldest first."""
        return tuple(self._lines)

    def add_line(self, text: str, source: LogSource = LogSource.SERVER) -> None:
        """Adds a line to the log; the oldest lines are dropped when it is full."""
        self._lines.append(LogLine(self._clock(), text, source))
        self._line_count += 1
        self._characters += len(text)
        while len(self._lines) > MAX_LINES or self._characters > MAX_CHARACTERS:
            self._characters -= len(self._lines.popleft().text)

    def note_call(self, seconds: float, *, is_ok: bool) -> None:
        """Records how long a call took."""
        self._calls.append(RecentCall(round(1000 * seconds, 1), is_ok))

    def note_connected(self) -> None:
        """Records that the server is connected: a restart, if it was connected before and lost."""
        self.add_line("connected", LogSource.GATEWAY)
        if self._lost_because is not None:
            self._restarts += 1
            self._restart_reason, self._lost_because = self._lost_because, None

    def note_lost(self, reason: str) -> None:
        """Records why the connection ended."""
        self._lost_because = reason
        self.add_line(reason, LogSource.GATEWAY)

    def add_to(self, status: ServerStatus) -> ServerStatus:
        """The status with what is known here."""
        return replace(
            status,
            restarts=self._restarts,
            restart_reason=self._restart_reason,
            recent_calls=tuple(self._calls),
            log_lines=self._line_count,
        )
