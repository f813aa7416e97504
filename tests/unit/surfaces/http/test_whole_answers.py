"""The head of an answer leaves with its body, and never later than the next turn of the loop."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from toolscript.surfaces.http.whole import _HoldsHeads

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire:
    """Remembers what it was given, write by write."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_open = True

    def write(self, data: bytes) -> None:
        assert self.is_open
        self.sent.append(data)

    def close(self) -> None:
        self.is_open = False

    def is_closing(self) -> bool:
        return not self.is_open


def wired() -> tuple[Wire, _HoldsHeads]:
    wire = Wire()
    return wire, _HoldsHeads(cast("Any", wire))


async def test_a_head_and_its_body_are_sent_in_one_piece() -> None:
    wire, transport = wired()
    transport.write(HEAD)
    transport.write(b"body")
    transport.write(b"more")
    await asyncio.sleep(0)
    transport.write(HEAD)
    transport.write(b"next")
    assert wire.sent == [HEAD + b"body", b"more", HEAD + b"next"]


async def test_a_head_that_nothing_follows_is_sent_in_the_next_turn() -> None:
    wire, transport = wired()
    transport.write(HEAD)
    assert wire.sent == []
    await asyncio.sleep(0)
    assert wire.sent == [HEAD]
    transport.write(b"late")
    assert wire.sent == [HEAD, b"late"]


async def test_a_head_is_sent_before_the_connection_is_closed() -> None:
    wire, transport = wired()
    transport.write(HEAD)
    transport.close()
    await asyncio.sleep(0)
    assert wire.sent == [HEAD]
    assert transport.is_closing()


async def test_a_body_that_looks_like_a_head_is_sent_all_the_same() -> None:
    wire, transport = wired()
    transport.write(HEAD)
    transport.write(HEAD)
    transport.write(HEAD)
    await asyncio.sleep(0)
    assert b"".join(wire.sent) == 3 * HEAD
