"""Rate limits in PostgreSQL, for gateways that share it. The database's clock counts."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.session import Session
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.ports.access import RateBuckets

MINUTE = 60.0
RETRY_SECONDS = 10.0
# One request in so many deletes full buckets, which mean the same as none.
CLEAN_UP_EVERY = 1000
# Much more than the rounding error of floats, much less than a client can measure.
_TOLERANCE_SECONDS = 1e-6
_NOW = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"

log = logging.getLogger(__name__)


class PostgresBuckets:
    """Token buckets in one database. While it does not answer, each process counts alone; from time to time one request
    tries the database again."""

    def __init__(
        self, database: Database, meanwhile: RateBuckets, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._meanwhile = meanwhile
        self._monotonic = monotonic
        self._alone_until: float | None = None

    async def take(self, name: str, per_minute: int) -> float:
        now = self._monotonic()
        if self._alone_until is not None:
            if now < self._alone_until:
                return await self._meanwhile.take(name, per_minute)
            self._alone_until = now + RETRY_SECONDS  # others do not wait for this one
        try:
            async with asyncio.timeout(current_limits().rate_bucket):
                wait = await self._database.write(lambda session: _take(session, name, MINUTE / per_minute))
        except (Unavailable, TimeoutError) as error:
            log.debug("rates_not_shared", extra={"reason": str(error)})
            self._alone_until = self._monotonic() + RETRY_SECONDS
            return await self._meanwhile.take(name, per_minute)
        self._alone_until = None
        return wait


def _take(session: Session, name: str, share: float) -> float:
    if random.randrange(CLEAN_UP_EVERY) == 0:  # noqa: S311
        session.run(f"DELETE FROM rate_buckets WHERE full_again < {_NOW}")
    # The row stays locked until the end of the transaction: requests of one client are counted one after the other.
    session.run(
        f"INSERT INTO rate_buckets (name, full_again) VALUES (:name, {_NOW}) ON CONFLICT (name) DO UPDATE "
        f"SET full_again = GREATEST(rate_buckets.full_again, {_NOW})",
        name=name,
    )
    (row,) = session.rows(
        f"SELECT full_again - {_NOW} + :share - :minute AS wait FROM rate_buckets WHERE name = :name",
        name=name,
        share=share,
        minute=MINUTE,
    )
    wait = float(row["wait"])
    if wait > _TOLERANCE_SECONDS:
        return math.ceil(wait * 1000) / 1000
    session.run("UPDATE rate_buckets SET full_again = full_again + :share WHERE name = :name", name=name, share=share)
    return 0.0
