"""The rate limit of each client, what identifies a client, and what is stored of it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.clock import Clock
from tests.fixtures.coroutines import finish
from tests.fixtures.examples import scale_examples
from toolscript.domain.errors import RateLimited
from toolscript.services.access import rates as module
from toolscript.services.access.rates import MINUTE, Buckets, Rates
from toolscript.surfaces.callers import get_client_key

pytestmark = pytest.mark.req("K-03")


def wait_of(rates: Rates, client: str = "a") -> float:
    """0 if admitted, else the seconds to wait."""
    try:
        finish(rates.admit(client))
    except RateLimited as error:
        wait: float = error.details["retry_after_seconds"]
        return wait
    return 0.0


def count_buckets(rates: Rates) -> int:
    assert isinstance(rates._buckets, Buckets)
    return len(rates._buckets)


def test_without_a_limit_nobody_is_refused_nor_stored() -> None:
    rates = Rates(0, Buckets(Clock()))
    assert [wait_of(rates, f"c{n % 7}") for n in range(1000)] == [0.0] * 1000
    assert count_buckets(rates) == 0


def test_a_burst_of_one_minute_is_allowed_then_an_even_share() -> None:
    clock = Clock()
    rates = Rates(4, Buckets(clock))
    assert [wait_of(rates) for _ in range(6)] == [0, 0, 0, 0, 15, 15]
    clock.now += 15
    assert [wait_of(rates), wait_of(rates)] == [0, 15]
    clock.now += 10_000
    assert [wait_of(rates) for _ in range(5)] == [0, 0, 0, 0, 15]


def test_a_refusal_names_the_limit_and_the_seconds_to_wait() -> None:
    rates = Rates(1, Buckets(Clock()))
    finish(rates.admit("a"))
    with pytest.raises(RateLimited) as error:
        finish(rates.admit("a"))
    assert error.value.message == "each client may send 1 requests a minute: try again in 60 seconds"
    assert error.value.details == {"retry_after_seconds": 60, "requests_per_minute": 1}


def test_clients_do_not_share_a_bucket() -> None:
    rates = Rates(1, Buckets(Clock()))
    assert [wait_of(rates, "a"), wait_of(rates, "b"), wait_of(rates, "a")] == [0, 0, 60]


def test_refused_requests_do_not_make_the_wait_longer() -> None:
    clock = Clock()
    rates = Rates(1, Buckets(clock))
    assert [wait_of(rates) for _ in range(50)] == [0] + [60] * 49
    clock.now += 60
    assert wait_of(rates) == 0


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0, 40, allow_nan=False), st.sampled_from("ab")), min_size=1, max_size=200),
)
def test_in_any_period_a_client_gets_no_more_than_its_burst_and_its_share(
    limit: int, asks: list[tuple[float, str]]
) -> None:
    clock = Clock()
    rates = Rates(limit, Buckets(clock))
    let_in: dict[str, list[float]] = {"a": [], "b": []}
    for pause, client in asks:
        clock.now += pause
        if wait_of(rates, client) == 0:
            let_in[client].append(clock.now)
    for times in let_in.values():
        for n, begin in enumerate(times):
            for m, end in enumerate(times[n:], start=1):
                assert m <= limit + limit * (end - begin) / MINUTE + 0.001


def test_memory_is_bounded_and_recent_callers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BUCKETS", 50)
    rates = Rates(2, Buckets(Clock()))
    for n in range(500):
        assert wait_of(rates, f"c{n}") == 0
        assert count_buckets(rates) <= 50
    assert [wait_of(rates, "c499"), wait_of(rates, "c499")] == [0, 30]


def test_full_buckets_are_dropped_a_few_at_a_time() -> None:
    clock = Clock()
    rates = Rates(60, Buckets(clock))
    for n in range(100):
        finish(rates.admit(f"c{n}"))
    clock.now += 60
    sizes = []
    for _ in range(100):
        finish(rates.admit("a"))
        sizes.append(count_buckets(rates))
        clock.now += 1
    assert all(before - after <= 2 for before, after in pairwise(sizes))
    assert sizes[-1] == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"),
        ("2001:db8:1:2::1", "2001:DB8:1:2::2"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::2"),
        ("", "not an address"),
    ],
)
def test_addresses_of_one_client(one: str, other: str) -> None:
    assert get_client_key(one) == get_client_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("192.0.2.7", "192.0.2.8"),
        ("2001:db8:1:2::1", "2001:db8:1:3::1"),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8"),
        ("::1", "127.0.0.1"),
        ("::1", "::ffff:127.0.0.1"),
        ("", "192.0.2.7"),
    ],
)
def test_addresses_of_different_clients(one: str, other: str) -> None:
    assert get_client_key(one) != get_client_key(other)
