"""How long a search waits for what it depends on, and how it says who did not answer."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, TypeVar

from toolscript.domain.errors import NotFound, TimedOut, ToolscriptError, Unavailable, UpstreamFailed

# Of an adapter's errors, those that say that it is out of order. Others are about what was asked.
OUT_OF_ORDER = (Unavailable, UpstreamFailed, TimedOut, NotFound)

T = TypeVar("T")

log = logging.getLogger(__name__)


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """What the work comes to. Raises TimeoutError when that takes too long; work that waits for nothing has no timer,
    which would take longer than many a search in memory."""
    try:
        awaited = work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    async with asyncio.timeout(seconds):
        return await _resumed(work, awaited)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """Goes on with work that waits for something, as `await` does with work that is not begun yet."""
    while True:
        try:
            yield awaited
        except BaseException as raised:  # noqa: BLE001  (whatever it is, it is the work's to handle)
            try:
                awaited = work.throw(raised)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
        else:
            return (yield from work)  # type: ignore[no-any-return]


class Patience:
    """So many seconds for all of a search's reads together, from now on; what is searched is told when they were not
    enough."""

    def __init__(self, seconds: float, searched: str = "documents") -> None:
        self._seconds = seconds
        self._searched = searched
        self._time = asyncio.get_running_loop().time
        self._until = self._time() + seconds

    @property
    def is_over(self) -> bool:
        """Whether there is no time left. May be asked in any thread."""
        return self._time() >= self._until

    def extend(self, seconds: float) -> None:
        """Lets something that has a limit of its own not count."""
        self._until += seconds

    def restart(self) -> None:
        """Begins to wait anew, for what is read in several steps."""
        self._until = self._time() + self._seconds

    async def of(self, adapter: str, work: Awaitable[T]) -> T:
        """What the adapter answers. Raises Unavailable, naming it, when it fails or takes too long; errors about what
        was asked stay as they are."""
        try:
            async with asyncio.timeout_at(self._until):
                return await work
        except TimeoutError:
            raise self.unavailable(adapter, f"no answer within {self._seconds:g} seconds") from None
        except OUT_OF_ORDER as error:
            raise self.unavailable(adapter, error.message) from error
        except ToolscriptError:
            raise
        except Exception as error:
            log.warning("adapter_failed", extra={"adapter": adapter, "reason": f"{type(error).__name__}: {error}"})
            raise self.unavailable(adapter, "it failed; the log tells more") from error

    def unavailable(self, adapter: str, why: str) -> Unavailable:
        """That nothing can be searched because of that adapter."""
        return Unavailable(
            f"{self._searched} cannot be searched right now, because of the {adapter}: {why}. Try again in a moment",
            details={"adapter": adapter},
        )
