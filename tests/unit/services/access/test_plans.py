"""Plans: what they allow, how their file is read, and the rate limit of each tenant."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.clock import Clock
from tests.fixtures.coroutines import finish
from tests.fixtures.examples import scale_examples
from toolscript.domain.access import Plan, Principal
from toolscript.domain.errors import Invalid, RateLimited
from toolscript.services.access.plans import Plans, load_plans
from toolscript.services.access.rates import Buckets

pytestmark = pytest.mark.req("D-12")

FREE = """
[plans.free]
max_top_k = 20
fields = ["title", "tags"]
requests_per_minute = 60
"""
FREE_PLAN = Plan("free", 20, frozenset({"title", "tags"}), 60)


def write_plans(folder: Path, text: str, name: str = "plans.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


# --- the file ---


def test_without_a_file_there_is_one_plan_without_limits() -> None:
    assert load_plans(None) == {"default": Plan()}


def test_a_file_adds_plans_in_toml_or_json(tmp_path: Path) -> None:
    response = {"plans": {"free": {"max_top_k": 20, "fields": ["title", "tags"], "requests_per_minute": 60}}}
    expected = {"default": Plan(), "free": FREE_PLAN}
    assert load_plans(write_plans(tmp_path, FREE)) == expected
    assert load_plans(write_plans(tmp_path, json.dumps(response), "plans.json")) == expected


def test_what_a_plan_leaves_out_is_not_limited(tmp_path: Path) -> None:
    assert load_plans(write_plans(tmp_path, "[plans.pro]"))["pro"] == Plan("pro")
    assert load_plans(write_plans(tmp_path, "[plans.none]\nfields = []"))["none"] == Plan("none", fields=frozenset())


def test_the_file_may_limit_the_default_plan(tmp_path: Path) -> None:
    plans = load_plans(write_plans(tmp_path, "[plans.default]\nmax_top_k = 5"))
    assert plans == {"default": Plan("default", 5)}


@pytest.mark.parametrize(
    ("text", "key", "response"),
    [
        ("[plan.free]", "plan", 'use plans; did you mean "plans"?'),
        ("plans = 3", "plans", "table of tables"),
        ("plans = []", "plans", "table of tables"),
        ("[plans]\nfree = 3", "plan free", "not a table"),
        ('[plans." "]', "plans", "without a name"),
        ("[plans.free]\ntop_k = 3", "plan free, top_k", "max_top_k, fields, requests_per_minute"),
        ("[plans.free]\nmax_top_k = 0", "plan free, max_top_k", "from 1 to 200"),
        ("[plans.free]\nmax_top_k = 201", "plan free, max_top_k", "from 1 to 200"),
        ("[plans.free]\nmax_top_k = true", "plan free, max_top_k", "from 1 to 200"),
        ("[plans.free]\nmax_top_k = 1.5", "plan free, max_top_k", "from 1 to 200"),
        ('[plans.free]\nmax_top_k = "20"', "plan free, max_top_k", "from 1 to 200"),
        ("[plans.free]\nrequests_per_minute = 0", "plan free, requests_per_minute", "from 1 to 1000000"),
        ("[plans.free]\nrequests_per_minute = -1", "plan free, requests_per_minute", "from 1 to 1000000"),
        ('[plans.free]\nfields = "title"', "plan free, fields", "list of names"),
        ("[plans.free]\nfields = [1]", "plan free, fields", "list of names"),
        ('[plans.free]\nfields = [""]', "plan free, fields", "list of names"),
    ],
)
def test_an_invalid_file_is_refused_naming_file_plan_and_field(
    tmp_path: Path, text: str, key: str, response: str
) -> None:
    file = write_plans(tmp_path, text)
    with pytest.raises(Invalid) as error:
        load_plans(file)
    assert error.value.details == {"file": str(file), "key": key}
    assert error.value.message.startswith(f"{file}: {key} ")
    assert response in error.value.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plans.toml", "[plans.free"),
        ("plans.toml", "[plans.free]\n[plans.free]"),
        ("plans.json", "{"),
        ("plans.json", '{"plans": {"free": {}, "free": {}}}'),
        ("plans.json", '{"plans": {"free": {"max_top_k": 1, "max_top_k": 2}}}'),
        ("plans.json", "[]"),
        ("plans.json", "[" * 100_000),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str) -> None:
    file = write_plans(tmp_path, text, name)
    with pytest.raises(Invalid) as error:
        load_plans(file)
    assert error.value.details == {"file": str(file)}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"nowhere\.toml"):
        load_plans(tmp_path / "nowhere.toml")


# --- the plan of a principal ---


def test_an_undefined_plan_is_the_default_plan() -> None:
    plans = Plans({"default": Plan("default", 5), "free": FREE_PLAN})
    assert plans.get(Principal("a", "free")) == FREE_PLAN
    assert plans.get(Principal("a", "gold")) == Plan("default", 5)
    assert plans.get(Principal("a")) == Plan("default", 5)
    assert Plans({}).get(Principal("a", "gold")) == Plan()


def test_a_caller_without_a_limit_is_never_refused_nor_stored() -> None:
    plans = Plans({}, Buckets(Clock()))
    for _ in range(1000):
        assert finish(plans.admit(Principal("a"))) == Plan()
    assert count_buckets(plans) == 0


# --- the rate limit ---


def count_buckets(plans: Plans) -> int:
    assert isinstance(plans._buckets, Buckets)
    return len(plans._buckets)


def build_limited(clock: Clock, per_minute: int) -> Plans:
    return Plans({"default": Plan(requests_per_minute=per_minute)}, Buckets(clock))


def count_admitted(plans: Plans, tenant: str = "a", plan: str = "default") -> float:
    """0 if admitted, else the seconds to wait."""
    try:
        finish(plans.admit(Principal(tenant, plan)))
    except RateLimited as error:
        wait: float = error.details["retry_after_seconds"]
        return wait
    return 0.0


def test_a_burst_of_one_minute_is_allowed_then_one_request_at_a_time() -> None:
    clock = Clock()
    plans = build_limited(clock, 6)
    assert [count_admitted(plans) for _ in range(8)] == [0, 0, 0, 0, 0, 0, 10, 10]
    clock.now += 4
    assert count_admitted(plans) == 6
    clock.now += 6
    assert [count_admitted(plans), count_admitted(plans)] == [0, 10]
    clock.now += 1000
    assert [count_admitted(plans) for _ in range(7)] == [0] * 6 + [10]


def test_a_refusal_names_the_limit_and_the_seconds_to_wait() -> None:
    plans = Plans({"free": replace(FREE_PLAN, requests_per_minute=1)}, Buckets(Clock()))
    finish(plans.admit(Principal("a", "free")))
    with pytest.raises(RateLimited) as error:
        finish(plans.admit(Principal("a", "free")))
    assert error.value.details == {"retry_after_seconds": 60, "requests_per_minute": 1, "plan": "free"}
    assert error.value.message == ("requests on the plan free are limited to 1 a minute: try again in 60 seconds")


def test_tenants_do_not_share_a_bucket() -> None:
    plans = build_limited(Clock(), 1)
    assert [count_admitted(plans, "a"), count_admitted(plans, "b")] == [0, 0]
    assert count_admitted(plans, "a") > 0


def test_a_tenant_has_one_bucket_whatever_plans_its_tokens_name() -> None:
    both = {"slow": Plan("slow", requests_per_minute=2), "fast": Plan("fast", requests_per_minute=4)}
    plans = Plans(both, Buckets(Clock()))
    assert [count_admitted(plans, plan="slow") for _ in range(3)] == [0, 0, 30]
    assert count_admitted(plans, plan="fast") == 15


@pytest.mark.slow
@settings(max_examples=scale_examples(150), deadline=None)
@given(st.integers(1, 10_000), st.lists(st.floats(0, 10, allow_nan=False), max_size=60))
def test_after_the_reported_wait_a_request_is_admitted_and_not_before(limit: int, pauses: list[float]) -> None:
    clock = Clock()
    plans = build_limited(clock, limit)
    for pause in [*pauses, *[0.0] * min(limit, 200)]:
        clock.now += pause
        wait = count_admitted(plans)
        if wait:
            began = clock.now
            clock.now = began + wait - 0.002
            assert wait < 0.003 or count_admitted(plans) > 0
            clock.now = began + wait
            assert count_admitted(plans) == 0
