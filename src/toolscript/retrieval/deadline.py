"""Limits the time that the parts of a search may take, and names the part that missed the deadline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TypeVar

from toolscript.domain.errors import NotFound, TimedOut, ToolscriptError, Unavailable, UpstreamFailed
from toolscript.domain.search import SearchPart

# Errors that mean that a part is out of order. Other errors are about the request.
PART_FAILURES = (Unavailable, UpstreamFailed, TimedOut, NotFound)

T = TypeVar("T")

log = logging.getLogger(__name__)


class Deadline:
    """A number of seconds, from now on, for all work of a search together.

    `subject` is what is searched, for error messages:

        deadline = Deadline(2.0, "documents")
        points = await deadline.call(SearchPart.INDEX, index.scroll("documents"))
    """

    def __init__(self, seconds: float, subject: str = "documents") -> None:
        self.seconds = seconds
        self._subject = subject
        self._time = asyncio.get_running_loop().time
        self._end = self._time() + seconds

    @property
    def is_over(self) -> bool:
        """Whether no time is left. Safe to read from any thread."""
        return self._time() >= self._end

    def extend(self, seconds: float) -> None:
        """Moves the end, so that work with a separate limit does not count."""
        self._end += seconds

    def restart(self) -> None:
        """Starts the seconds again, for results that are read in several steps."""
        self._end = self._time() + self.seconds

    def timeout(self) -> asyncio.Timeout:
        """A context manager that raises TimeoutError when the deadline passes inside it."""
        return asyncio.timeout_at(self._end)

    async def call(self, part: SearchPart, work: Awaitable[T]) -> T:
        """The result of the work. Raises Unavailable, naming the part, when it fails or the deadline passes; errors
        about the request are raised unchanged."""
        try:
            async with self.timeout():
                return await work
        except TimeoutError:
            raise self.unavailable(part, f"no answer within {self.seconds:g} seconds") from None
        except PART_FAILURES as error:
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
