"""Limits the time that the steps of a search, a call or a program share, and names the part that took too long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeVar

from toolscript.domain.errors import NotFound, TimedOut, ToolscriptError, Unavailable, UpstreamFailed
from toolscript.domain.search import SearchPart

# Errors that mean that a part is out of order. Other errors are about the request.
PART_FAILURES = (Unavailable, UpstreamFailed, TimedOut, NotFound)

T = TypeVar("T")

log = logging.getLogger(__name__)


class Deadline:
    """A number of seconds, from now on, for all work of a search, a call or a program together.

    `subject` is what is searched or called, for error messages. Errors of a part that are in `failures` are reported as
    the part's, other errors are about the request.

        deadline = Deadline(2.0, "documents")
        points = await deadline.call(SearchPart.INDEX, index.scroll("documents"))
    """

    def __init__(
        self,
        seconds: float,
        subject: str = "documents",
        failures: tuple[type[ToolscriptError], ...] = PART_FAILURES,
    ) -> None:
        self.seconds = seconds
        self._subject = subject
        self._failures = failures
        self._time = asyncio.get_running_loop().time
        self._end = self._time() + seconds
        self._timeout: asyncio.Timeout | None = None
        self._pauses = 0
        self._paused_with = 0.0

    @property
    def is_over(self) -> bool:
        """Whether no time is left. Safe to read from any thread."""
        return self._time() >= self._end

    @property
    def seconds_left(self) -> float:
        """The seconds until the end. During a pause, the seconds until the pause has to end are included."""
        return self._end - self._time()

    def restart(self, seconds: float | None = None) -> None:
        """Starts the seconds again, or other seconds, for work that is done in several steps."""
        self.seconds = self.seconds if seconds is None else seconds
        self._move_end(self.seconds)

    @contextmanager
    def pause(self, max_seconds: float = 0.0) -> Iterator[None]:
        """Time in the block does not count, also where blocks overlap. Inside the newest block at least `max_seconds`
        are left."""
        if not self._pauses:
            self._paused_with = self.seconds_left
        self._pauses += 1
        self._move_end(max(self._paused_with, 0.0) + max_seconds)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._move_end(self._paused_with)

    def _move_end(self, seconds: float) -> None:
        self._end = self._time() + seconds
        if self._timeout:
            with suppress(RuntimeError):  # its block has ended meanwhile
                self._timeout.reschedule(self._end)

    def timeout(self) -> asyncio.Timeout:
        """A context manager that raises TimeoutError when the deadline passes inside it. The newest one follows an end
        that moves."""
        self._timeout = asyncio.timeout_at(self._end)
        return self._timeout

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Runs a step of a call. Raises TimedOut when the deadline passes inside it."""
        try:
            async with self.timeout():
                yield
        except TimeoutError:
            raise TimedOut(
                f"{self._subject} did not answer within {self.seconds:g} s", details={"seconds": self.seconds}
            ) from None

    async def call(self, part: SearchPart, work: Awaitable[T]) -> T:
        """The result of the work. Raises Unavailable, naming the part, when it fails or the deadline passes; errors
        about the request are raised unchanged."""
        try:
            async with self.timeout():
                return await work
        except TimeoutError:
            raise self.unavailable(part, f"no answer within {self.seconds:g} seconds") from None
        except self._failures as error:
            raise self.unavailable(part, error.message) from error
        except ToolscriptError:
            raise
        except Exception as error:
            log.warning("adapter_failed", extra={"adapter": part, "reason": f"{type(error).__name__}: {error}"})
            raise self.unavailable(part, "it failed, see the log") from error

    def unavailable(self, part: SearchPart, reason: str) -> Unavailable:
        """The error that says that the subject cannot be searched because of that part."""
        return Unavailable(
            f"{self._subject} cannot be searched right now, because of the {part}: {reason}. Try again in a moment",
            details={"adapter": part.value},
        )
