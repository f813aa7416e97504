"""Which searches and calls make a success, and what is recorded of it."""

from __future__ import annotations

import pytest

from tests.fixtures.serving import replace_parts
from toolscript.app.app import App
from toolscript.domain.access import Caller
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.feedback import MAX_REQUEST_CHARACTERS, Verdict
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.tools.feedback import MAX_PER_CALLER, MAX_PER_ITEM, Feedback

pytestmark = pytest.mark.slow

TOOL, OTHER = "git__git_commit", "git__git_log"
ITEMS = [item for item in load_demo_items() if item.server in {"git", "email", "weather"}]
ADA, BEN = Caller(key="ada"), Caller(address="192.0.2.7")


@pytest.fixture
async def feedback(app: App) -> Feedback:
    await app.catalogue.sync.run(ITEMS)
    return app.tools.feedback


async def read_successes(app: App) -> list[tuple[str, str, str]]:
    await app.tools.feedback.close()
    return [(s.item_id, s.request, s.caller) for s in await app.stores.feedback.get_verdicts()]


async def test_a_call_of_a_hit_is_a_success_of_the_caller_who_searched(app: App, feedback: Feedback) -> None:
    feedback.note_search(ADA, " store my\nchanges ", [TOOL])
    feedback.note_call(BEN, TOOL)
    feedback.note_call(ADA, OTHER)
    assert await read_successes(app) == []
    feedback.note_call(ADA, TOOL)
    assert await read_successes(app) == [(TOOL, "store my changes", "ada")]


async def test_no_address_of_a_caller_without_a_key_is_stored(app: App, feedback: Feedback) -> None:
    feedback.note_search(BEN, "store my changes", [TOOL])
    feedback.note_call(BEN, TOOL)
    assert await read_successes(app) == [(TOOL, "store my changes", "")]


async def test_a_request_too_long_for_one_tool_is_not_recorded(app: App, feedback: Feedback) -> None:
    long = "x" * (MAX_REQUEST_CHARACTERS + 1)
    feedback.note_search(ADA, long, [TOOL])
    feedback.note_call(ADA, TOOL)
    feedback.note_call(ADA, TOOL, long)
    assert await read_successes(app) == []
    for text in (long, " \n"):
        with pytest.raises(Invalid, match="characters"):
            await feedback.mark(ADA, TOOL, text)


async def test_a_request_without_words_is_not_recorded(app: App, feedback: Feedback) -> None:
    feedback.note_call(ADA, TOOL, "?!?!")
    assert await read_successes(app) == []
    with pytest.raises(Invalid, match="a word"):
        await feedback.mark(ADA, TOOL, "?!?!")


async def test_a_mark_of_a_vanished_tool_can_be_taken_back(app: App, feedback: Feedback) -> None:
    await feedback.mark(ADA, TOOL, "store my changes")
    await app.catalogue.sync.run([item for item in ITEMS if item.id != TOOL])
    with pytest.raises(NotFound):
        await feedback.mark(ADA, TOOL, "store my changes")
    assert await feedback.mark(ADA, TOOL, "store my changes", useful=None)
    assert await read_successes(app) == []
    with pytest.raises(NotFound):
        await feedback.mark(ADA, TOOL, "store my changes", useful=None)


async def test_a_mark_of_an_unknown_tool_names_the_nearest(feedback: Feedback) -> None:
    with pytest.raises(NotFound, match="git__git_commit"):
        await feedback.mark(ADA, "git__git_comit", "store my changes")


async def test_a_tool_id_that_is_not_utf_8_is_an_unknown_tool(feedback: Feedback) -> None:
    for useful in (True, False, None):
        with pytest.raises(NotFound):
            await feedback.mark(ADA, "git__\udcff", "store my changes", useful=useful)
    assert await feedback.reset("git__\udcff") == 0


async def test_a_request_of_two_callers_counts_once_until_both_have_taken_it_back(app: App, feedback: Feedback) -> None:
    await feedback.mark(ADA, TOOL, "store my changes")
    await feedback.mark(BEN, TOOL, "Store my changes")
    await feedback.apply()
    found = await feedback.get(TOOL)
    assert (found.requests, found.step and found.step.successes) == (["Store my changes"], 1)
    assert await feedback.mark(BEN, TOOL, "store my changes", useful=None)
    assert await read_successes(app) == [(TOOL, "store my changes", "ada")]


async def test_a_call_does_not_turn_a_mark_as_wrong_into_one_as_right(app: App, feedback: Feedback) -> None:
    await feedback.mark(ADA, TOOL, "store my changes", useful=False)
    feedback.note_call(ADA, TOOL, "store my changes")
    await feedback.close()
    found = await feedback.get(TOOL)
    assert (found.requests, found.wrong_requests) == ([], ["store my changes"])


async def test_one_caller_alone_makes_up_no_more_than_half_of_a_tools_successes(app: App, feedback: Feedback) -> None:
    for number in range(MAX_PER_ITEM + 3):
        await feedback.mark(ADA, TOOL, f"request {number}")
    assert len(await read_successes(app)) == MAX_PER_CALLER


async def test_a_store_that_fails_fails_no_call(app: App, feedback: Feedback, caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        async def add_verdict(self, success: Verdict, **_: int) -> None:
            raise Unavailable("the store does not answer")

    broken = replace_parts(feedback, _store=Failing())  # type: ignore[arg-type]
    broken.note_call(ADA, TOOL, "store my changes")  # type: ignore[attr-defined]
    await broken.close()  # type: ignore[attr-defined]
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == ["verdict_not_recorded"]


async def test_the_list_says_what_became_of_each_tool(feedback: Feedback) -> None:
    await feedback.mark(ADA, OTHER, "what happened before?")
    await feedback.mark(ADA, TOOL, "store my changes")
    await feedback.mark(ADA, TOOL, "keep a snapshot of my work")
    await feedback.apply()
    found = await feedback.list()
    assert [(each.item_id, len(each.requests)) for each in found] == [(TOOL, 2), (OTHER, 1)]
    assert all(each.step and each.step.successes == len(each.requests) for each in found)
    with pytest.raises(NotFound, match="toolscript feedback"):
        await feedback.get("git__git_diff")
