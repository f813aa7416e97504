"""What every store of feedback promises: bounded, one verdict per request, steps with their vectors, and erasable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from toolscript.adapters.sql.catalogue_version import SqlCatalogueVersion
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.feedback import SqlFeedback
from toolscript.domain.feedback import Step, Verdict
from toolscript.ports.stores import FeedbackStore

VECTOR = np.array([0.25, -0.5, 0.75], dtype=np.float32)
STEP = Step("git__log", "model", "digest", "stamp", successes=3, cosine=0.97, vector=VECTOR)
REFUSED = Step("git__diff", "model", "digest", "stamp", successes=1, refusal="others")


@pytest.fixture
def store(database: Database) -> FeedbackStore:
    return SqlFeedback(database)


async def add(
    store: FeedbackStore,
    *successes: Verdict,
    max_per_item: int = 32,
    max_per_caller: int = 16,
    max_of_caller: int = 100,
) -> None:
    for verdict in successes:
        await store.add_verdict(
            verdict, max_per_item=max_per_item, max_per_caller=max_per_caller, max_of_caller=max_of_caller
        )


async def test_a_verdict_is_right_or_wrong_and_the_newer_one_counts(store: FeedbackStore) -> None:
    right, wrong = Verdict("git__log", "show the log", "ci", 1.0), Verdict("git__log", "b", "ci", 2.0, is_right=False)
    await add(store, right, wrong)
    assert await store.get_verdicts() == [right, wrong]
    await add(store, replace(right, recorded_at=3.0, is_right=False))
    assert [each.is_right for each in await store.get_verdicts()] == [False, False]


async def test_what_is_marked_as_wrong_stays_so_unless_it_is_overruled(store: FeedbackStore) -> None:
    wrong = Verdict("git__log", "show the log", "ci", 1.0, is_right=False)
    right = replace(wrong, recorded_at=2.0, is_right=True)
    await add(store, wrong)
    limits = {"max_per_item": 9, "max_per_caller": 9, "max_of_caller": 9}
    await store.add_verdict(right, **limits, overrules=False)
    assert await store.get_verdicts() == [wrong]
    await add(store, right)
    await store.add_verdict(replace(right, recorded_at=3.0), **limits, overrules=False)
    assert await store.get_verdicts() == [replace(right, recorded_at=3.0)]


async def test_successes_come_back_by_item_and_time(store: FeedbackStore) -> None:
    early, late = Verdict("git__log", "what happened?", "ci", 1.5), Verdict("git__log", "Übersicht 😀", "", 2.5)
    other = Verdict("git__diff", "x" * 1000, "ci", 1.0)
    await add(store, late, early, other)
    assert await store.get_verdicts() == [other, early, late]
    assert await store.get_verdicts(["git__log"]) == [early, late]
    assert await store.get_verdicts([]) == []


async def test_the_same_request_counts_once_for_each_caller(store: FeedbackStore) -> None:
    first, other = Verdict("git__log", "Show the log", "ci", 1.0), Verdict("git__log", "show  the LOG", "other", 5.0)
    await add(store, first, other, replace(first, request="show the log", recorded_at=7.0))
    assert await store.get_verdicts() == [other, replace(first, recorded_at=7.0)]


async def test_each_caller_takes_back_its_own_success_of_the_same_request(store: FeedbackStore) -> None:
    mine, yours = Verdict("git__log", "show the log", "mine", 1.0), Verdict("git__log", "show the log", "yours", 2.0)
    await add(store, mine, yours)
    assert await store.remove_verdict(mine)
    assert await store.get_verdicts() == [yours]
    assert await store.remove_verdict(yours)
    assert await store.get_verdicts() == []


async def test_an_old_success_is_dropped_also_where_its_request_has_a_newer_one(store: FeedbackStore) -> None:
    made = [Verdict("git__log", "show the log", caller, at) for at, caller in enumerate("abc")]
    await add(store, *made, max_per_item=2)
    assert await store.get_verdicts() == made[1:]


async def test_the_newest_successes_of_an_item_are_kept(store: FeedbackStore) -> None:
    made = [Verdict("git__log", f"request {n}", f"caller {n}", float(n)) for n in range(6)]
    await add(store, *made, Verdict("git__diff", "request 0"), max_per_item=4)
    assert await store.get_verdicts(["git__log"]) == made[2:]
    assert len(await store.get_verdicts(["git__diff"])) == 1


async def test_one_caller_does_not_displace_the_successes_of_others(store: FeedbackStore) -> None:
    modest = Verdict("git__log", "the one request", "modest", 0.0)
    flood = [Verdict("git__log", f"request {n}", "eager", float(n)) for n in range(1, 10)]
    await add(store, modest, *flood, max_per_item=4, max_per_caller=2)
    assert await store.get_verdicts() == [modest, *flood[-2:]]


async def test_a_caller_has_a_bounded_number_of_successes_over_all_items(store: FeedbackStore) -> None:
    modest = Verdict("item 0", "the one request", "modest", 0.0)
    flood = [Verdict(f"item {n}", "a request", "eager", float(n)) for n in range(9)]
    await add(store, modest, *flood, max_of_caller=3)
    assert await store.get_verdicts() == [modest, *flood[-3:]]


async def test_a_caller_takes_back_only_its_own_success(store: FeedbackStore) -> None:
    verdict = Verdict("git__log", "show the log", "ci", 1.0)
    await add(store, verdict)
    assert not await store.remove_verdict(replace(verdict, caller="other"))
    assert await store.remove_verdict(replace(verdict, request="SHOW the log"))
    assert not await store.remove_verdict(verdict)
    assert await store.get_verdicts() == []


async def test_all_successes_of_a_caller_are_removed_or_those_of_an_item(store: FeedbackStore) -> None:
    theirs = [Verdict("git__log", "a", "bad", 1.0), Verdict("git__diff", "b", "bad", 2.0)]
    others = [Verdict("git__diff", "b", "", 3.0), Verdict("git__log", "a", "good", 4.0)]
    await add(store, *theirs, *others)
    assert await store.remove_caller("bad", ["git__log"]) == 1
    assert await store.remove_caller("bad") == 1
    assert await store.get_verdicts() == others
    assert await store.remove_caller("") == 1
    assert await store.get_verdicts() == others[1:]


async def test_vectors_of_requests_are_kept_with_their_model(store: FeedbackStore) -> None:
    verdict = Verdict("git__log", "show the log")
    await add(store, verdict, replace(verdict, item_id="git__diff"))
    assert [each.vector for each in await store.get_verdicts()] == [None, None]
    await store.save_vectors("model", {verdict.digest: VECTOR})
    for each in await store.get_verdicts():
        assert each.model == "model"
        assert each.vector is not None
        assert each.vector.tolist() == VECTOR.tolist()


async def test_steps_are_replaced_all_at_once(store: FeedbackStore) -> None:
    await store.replace_steps([STEP, REFUSED])
    found = await store.get_steps()
    assert found == {STEP.item_id: STEP, REFUSED.item_id: REFUSED}
    assert found[STEP.item_id].vector.tolist() == VECTOR.tolist()  # type: ignore[union-attr]
    assert found[REFUSED.item_id].vector is None
    assert await store.get_steps([REFUSED.item_id]) == {REFUSED.item_id: REFUSED}
    await store.replace_steps([REFUSED])
    assert await store.get_steps() == {REFUSED.item_id: REFUSED}


async def test_a_reset_deletes_everything_about_an_item_or_about_all(store: FeedbackStore) -> None:
    await add(store, Verdict("git__log", "a"), Verdict("git__log", "b"), Verdict("git__diff", "c"))
    await store.replace_steps([STEP, REFUSED])
    assert await store.reset(["git__log"]) == 2
    assert [each.item_id for each in await store.get_verdicts()] == ["git__diff"]
    assert list(await store.get_steps()) == ["git__diff"]
    assert await store.reset() == 1
    assert (await store.get_verdicts(), await store.get_steps()) == ([], {})


async def test_changed_steps_advance_the_catalogue_and_recorded_requests_do_not(
    store: FeedbackStore, database: Database
) -> None:
    version = SqlCatalogueVersion(database)
    versions = [await version.read()]
    await add(store, Verdict("git__log", "a"))
    versions.append(await version.read())
    await store.replace_steps([STEP])
    versions.append(await version.read())
    await store.reset()
    versions.append(await version.read())
    assert versions[0] == versions[1] < versions[2] < versions[3]
