"""Places are shared fairly, whoever comes, and are given back."""

from __future__ import annotations

from contextlib import suppress

import pytest

from toolscript.domain.access import ShareHolder
from toolscript.domain.errors import Unavailable
from toolscript.services.support.shares import Shares

pytestmark = pytest.mark.req("X-12")

GREEDY, OTHER = ShareHolder("key greedy"), ShareHolder("key other")


def take_all(shares: Shares, holder: ShareHolder) -> int:
    """Takes places until one is refused; how many there were."""
    before = shares.taken
    with suppress(Unavailable):
        while True:
            shares.take(holder)
    return shares.taken - before


def test_a_caller_alone_gets_half_and_each_further_one_a_share() -> None:
    shares = Shares("calls", 600)
    assert [take_all(shares, ShareHolder(f"key {n}")) for n in range(4)] == [300, 150, 75, 38]


def test_however_many_greedy_callers_there_are_the_next_one_finds_a_place() -> None:
    shares = Shares("calls", 64)
    for number in range(6):
        assert take_all(shares, ShareHolder(f"key {number}")) > 0


def test_a_refusal_says_whose_places_are_taken_and_when_to_try_again() -> None:
    shares = Shares("calls", 2)
    shares.take(GREEDY)
    with pytest.raises(Unavailable, match="you have 1 calls in progress, and the 1 that are left") as refused:
        shares.take(GREEDY)
    assert refused.value.details == {"retry_after_seconds": 1.0}
    shares.take(OTHER)
    with pytest.raises(Unavailable, match="as many calls in progress as it can take"):
        shares.take(OTHER)


def test_a_place_is_given_back_also_after_an_error() -> None:
    shares = Shares("calls", 2)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), shares.hold(GREEDY):
            raise ZeroDivisionError
    assert shares.taken == 0


def test_callers_without_a_key_have_a_small_share_and_together_a_quarter() -> None:
    shares = Shares("subscriptions", 256)
    strangers = [ShareHolder(f"address 10.0.0.{number}", is_anonymous=True) for number in range(200)]
    assert take_all(shares, strangers[0]) == 8
    for stranger in strangers:
        take_all(shares, stranger)
    assert shares.taken == 64
    assert take_all(shares, OTHER) == 96


def test_what_is_large_takes_many_places() -> None:
    shares = Shares("bytes", 100)
    shares.take(GREEDY, 40)
    with pytest.raises(Unavailable):
        shares.take(OTHER, 70)
    shares.give_back(GREEDY, 40)
    shares.take(OTHER, 70)
