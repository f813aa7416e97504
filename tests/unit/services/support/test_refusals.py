"""Refused requests as events, and how few of them anyone can cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.fixtures.requests import as_request
from toolscript.domain.errors import Forbidden, Unauthorized
from toolscript.domain.redaction import MAX_CHARACTERS
from toolscript.services.access.rates import Buckets
from toolscript.services.support.refusals import MAX_PER_MINUTE, Refusals
from toolscript.services.support.search_events import MAX_NAME

pytestmark = pytest.mark.req("G-16")


class Events:
    """Keeps events."""

    def __init__(self) -> None:
        self.recorded: list[Mapping[str, Any]] = []

    def record(self, event: Mapping[str, Any]) -> None:
        self.recorded.append(event)

    async def close(self) -> None:
        """Nothing is open."""


async def test_strangers_together_and_each_caller_cause_ten_events_a_minute() -> None:
    events, now = Events(), 0.0
    refusals = Refusals(events, Buckets(lambda: now))
    for number in range(3 * MAX_PER_MINUTE):
        with as_request(client_address=f"192.0.2.{number}"):
            await refusals.record(f"POST /tools/{number}", Unauthorized("no key"))
    assert len(events.recorded) == MAX_PER_MINUTE
    for name in ("ada", "ben"):
        for _ in range(3 * MAX_PER_MINUTE):
            with as_request(caller_name=name):
                await refusals.record("POST /tools/x", Forbidden("no scope"))
    assert [event["caller"] for event in events.recorded[MAX_PER_MINUTE:]] == [
        *["ada"] * MAX_PER_MINUTE,
        *["ben"] * MAX_PER_MINUTE,
    ]
    now = 60.0
    with as_request(caller_name="ben"):
        await refusals.record("POST /tools/x", Forbidden("no scope"))
    assert len(events.recorded) == 3 * MAX_PER_MINUTE + 1


async def test_what_a_caller_chooses_is_short_and_has_no_secret() -> None:
    events = Events()
    secret = "sk-aB3dE5fG7hJ9kL1mN3pQ"
    await Refusals(events, Buckets()).record(f"GET /{secret}/{'x' * 5000}", Forbidden(f"Host {secret}{'y ' * 5000}"))
    (event,) = events.recorded
    assert (event["type"], event["error"]) == ("access.refused", "FORBIDDEN")
    assert len(event["tool"]) == MAX_NAME
    assert len(event["reason"]) < MAX_CHARACTERS + 200
    assert secret not in str(event)
