"""Failures of a store or an index while it is in use: logged once with the reason, reported to callers without
it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from toolscript.domain.errors import DiskFull, Unavailable

log = logging.getLogger(__name__)


class Outage(Unavailable):
    """A store or an index did not do its work. The message may name hosts, databases and files."""


class OutageWatch:
    """Watches the calls to one store or index.

    Until one has succeeded, an Outage passes unchanged: it is for the person who starts the program. Later outages
    reach callers of the gateway, who learn nothing of hosts and databases. The log says why, once until a call
    succeeds.
    """

    def __init__(self, part: str) -> None:
        """`part` is "store" or "index", for messages."""
        self._part = part
        self._has_worked = False
        self._is_failing = False

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watches one call. Raises Unavailable instead of Outage."""
        try:
            yield
        except DiskFull as error:
            self._note(error.message)
            raise
        except Outage as error:
            if not self._has_worked:
                raise
            self._note(error.message)
            raise Unavailable(
                f"the {self._part} is not available right now", details={"adapter": self._part}
            ) from error
        if self._is_failing:
            log.warning("available_again", extra={"adapter": self._part})
        self._has_worked, self._is_failing = True, False

    def _note(self, reason: str) -> None:
        if not self._is_failing:
            log.warning("not_available", extra={"adapter": self._part, "reason": reason})
        self._is_failing = True
