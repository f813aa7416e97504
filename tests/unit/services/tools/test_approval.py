"""Which calls need a person's approval, and what an approval is good for."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.clock import Clock
from tests.fixtures.databases import open_memory_database
from tests.fixtures.examples import scale_examples
from tests.fixtures.limits import set_limits
from toolscript.adapters.sql.access.approvals import SqlApprovals
from toolscript.domain.access import ApprovalPolicy, PendingCall
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import ApprovalDeclined, ApprovalRequired, TimedOut, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.profiles import Profile
from toolscript.domain.servers import CallRelay, CallResult
from toolscript.ports.access import ApprovalStore
from toolscript.services.tools.approval import MAX_ARGUMENTS, QUESTION_KEY, Approvals

pytestmark = pytest.mark.req("G-13")

NEVER, DESTRUCTIVE, WRITES = ApprovalPolicy
READER = Item("disk", "read", annotations={"readOnlyHint": True, "destructiveHint": True})
ADDER = Item("disk", "add", annotations={"readOnlyHint": False, "destructiveHint": False})
WRITER = Item("disk", "write")
ALLOW = {"action": "accept", "content": {"allow": True}}
MODERN = CallRelay(capabilities={"elicitation": {}})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=5
)


class FrozenStore(SqlApprovals):
    """A store that never answers."""

    async def use(self, ticket: str, *, now: float, expires_at: float) -> bool:
        await asyncio.sleep(60)
        return True

    async def submit(self, call: PendingCall, *, limit: int) -> PendingCall | None:
        await asyncio.sleep(60)
        return None


def build_approvals(
    gateway: ApprovalPolicy = NEVER,
    server: ApprovalPolicy = NEVER,
    profile: ApprovalPolicy | None = None,
    clock: Clock | None = None,
    store: ApprovalStore | None = None,
) -> Approvals:
    of_profile = None if profile is None else Profile("p", approval=profile)
    store = store or SqlApprovals(open_memory_database())
    return Approvals(gateway, lambda _: server, Mock(find_profile=lambda _: of_profile), store, clock or Clock())


def answer_again(state: Any, responses: Any = None) -> CallRelay:
    """A call of 2026-07-28 with these answers; by default an approval."""
    answers = {"inputResponses": {QUESTION_KEY: ALLOW} if responses is None else responses, "requestState": state}
    return CallRelay(capabilities={"elicitation": {}}, answers=answers)


async def get_question(approvals: Approvals, arguments: dict[str, Any], item: Item = WRITER) -> CallResult:
    with pytest.raises(ApprovalRequired) as required:
        await approvals.obtain(item, arguments, MODERN)
    assert required.value.question is not None
    return required.value.question


@pytest.mark.parametrize(
    ("policy", "needed"),
    [(NEVER, []), (DESTRUCTIVE, [WRITER]), (WRITES, [ADDER, WRITER])],
)
def test_the_strictest_policy_counts_wherever_it_is(policy: ApprovalPolicy, needed: list[Item]) -> None:
    items = [READER, ADDER, WRITER, Item("disk", "notes", type=ItemType.RESOURCE), Item("x", "y", type=ItemType.PROMPT)]
    for approvals in (
        build_approvals(policy),
        build_approvals(server=policy),
        build_approvals(profile=policy),
        build_approvals(policy, NEVER, NEVER),
    ):
        assert [item for item in items if approvals.are_needed(item)] == needed
    assert build_approvals(DESTRUCTIVE, WRITES, NEVER).are_needed(ADDER)
    assert build_approvals(WRITES, NEVER, DESTRUCTIVE).are_needed(ADDER)


async def test_an_approval_counts_once_and_for_ten_minutes() -> None:
    clock = Clock()
    approvals = build_approvals(WRITES, clock=clock)
    question = await get_question(approvals, {"path": "a"})
    clock.now += current_limits().approval - 1
    approved = await approvals.obtain(WRITER, {"path": "a"}, answer_again(question.raw["requestState"]))
    assert approved.relay.answers == {}
    with pytest.raises(ApprovalRequired, match="was used already, is older than 10 minutes, or is for another call"):
        await approvals.obtain(WRITER, {"path": "a"}, answer_again(question.raw["requestState"]))
    late = await get_question(approvals, {"path": "a"})
    clock.now += current_limits().approval
    with pytest.raises(ApprovalRequired, match="call it again without requestState"):
        await approvals.obtain(WRITER, {"path": "a"}, answer_again(late.raw["requestState"]))


async def test_an_approval_is_for_one_tool_definition_and_arguments() -> None:
    approvals = build_approvals(WRITES)
    state = (await get_question(approvals, {"path": "a"})).raw["requestState"]
    changed = Item("disk", "write", "Now it does something else")
    for item, arguments in ((WRITER, {"path": "b"}), (ADDER, {"path": "a"}), (changed, {"path": "a"})):
        with pytest.raises(ApprovalRequired, match="is for another call"):
            await approvals.obtain(item, arguments, answer_again(state))
    assert (await approvals.obtain(WRITER, {"path": "a"}, answer_again(state))).binding


async def test_an_answer_counts_even_if_no_approval_is_needed_any_more() -> None:
    question = await get_question(build_approvals(WRITES), {})
    declined = answer_again(question.raw["requestState"], {QUESTION_KEY: {"action": "decline"}})
    with pytest.raises(ApprovalDeclined):
        await build_approvals(NEVER).obtain(WRITER, {}, declined)
    allowed = await build_approvals(NEVER).obtain(WRITER, {}, answer_again(question.raw["requestState"]))
    assert allowed.relay.answers == {}


@pytest.mark.parametrize("responses", ["yes", [QUESTION_KEY], {QUESTION_KEY: [ALLOW]}])
async def test_answers_of_a_wrong_shape_are_no_approval(responses: Any) -> None:
    approvals = build_approvals(WRITES)
    state = (await get_question(approvals, {})).raw["requestState"]
    with pytest.raises(ApprovalDeclined):
        await approvals.obtain(WRITER, {}, answer_again(state, responses))


async def test_while_the_store_does_not_answer_no_approval_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, approval_store=0.01)
    approvals = build_approvals(WRITES, store=FrozenStore(open_memory_database()))
    state = (await get_question(approvals, {})).raw["requestState"]
    with pytest.raises(Unavailable, match="the approval could not be checked"):
        await approvals.obtain(WRITER, {}, answer_again(state))
    with pytest.raises(Unavailable, match="call the tool again"):
        await approvals.obtain(WRITER, {}, CallRelay())
    assert (await approvals.obtain(READER, {}, MODERN)).binding is None


async def test_a_question_that_was_declined_cannot_be_answered_again() -> None:
    approvals = build_approvals(WRITES)
    state = (await get_question(approvals, {})).raw["requestState"]
    with pytest.raises(ApprovalDeclined, match="disk__write was not called: the user declined it"):
        await approvals.obtain(WRITER, {}, answer_again(state, {QUESTION_KEY: {"action": "decline"}}))
    with pytest.raises(ApprovalRequired):
        await approvals.obtain(WRITER, {}, answer_again(state))


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"action": "cancel"},
        {"action": "decline", "content": {"allow": True}},
        {"action": "accept"},
        {"action": "accept", "content": {"allow": False}},
        {"action": "accept", "content": {"allow": "true"}},
        {"action": "accept", "content": {"allow": 1}},
    ],
    ids=str,
)
async def test_only_a_clear_yes_is_one(answer: Any) -> None:
    approvals = build_approvals(WRITES)
    state = (await get_question(approvals, {})).raw["requestState"]
    with pytest.raises(ApprovalDeclined):
        await approvals.obtain(WRITER, {}, answer_again(state, {QUESTION_KEY: answer}))

    async def ask(*_: object) -> Any:
        return answer

    with pytest.raises(ApprovalDeclined):
        await approvals.obtain(WRITER, {}, CallRelay(capabilities={"elicitation": {}}, ask=ask))


@pytest.mark.parametrize("capabilities", [None, {"sampling": {}}, {"elicitation": {"url": {}}}])
async def test_a_client_that_shows_no_forms_is_refused(capabilities: Any) -> None:
    with pytest.raises(ApprovalRequired, match="and this caller cannot be asked") as refused:
        await build_approvals(WRITES).obtain(WRITER, {}, CallRelay(capabilities=capabilities))
    assert refused.value.question is None


async def test_an_older_client_answers_meanwhile_and_its_silence_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    approvals = build_approvals(WRITES)
    relay = CallRelay(capabilities={"elicitation": {}}, ask=lambda *_: asyncio.sleep(60, {}))
    set_limits(monkeypatch, approval=0.01)
    with pytest.raises(TimedOut, match="disk__write was not called: nobody approved it within"):
        await approvals.obtain(WRITER, {}, relay)

    async def fail(*_: object) -> Any:
        raise RuntimeError("no window")

    with pytest.raises(ApprovalRequired, match=r"could not ask for approval \(no window\)") as failed:
        await approvals.obtain(WRITER, {}, CallRelay(capabilities={"elicitation": {}}, ask=fail))
    assert failed.value.question is None


async def test_the_question_shows_arguments_without_secrets_and_invisible_characters() -> None:
    approvals = build_approvals(WRITES)
    arguments = {"path": "a\u202eb\n", "password": "hunter2", "text": "long " * 3000, "more": ["word " * 150] * 9}
    (question,) = (await get_question(approvals, arguments)).raw["inputRequests"].values()
    message = question["params"]["message"]
    assert message.startswith("Allow disk__write (of the server disk) with these arguments?\n{")
    assert r'"path": "a\u202eb\n"' in message
    assert "hunter2" not in message
    assert "(15000 characters, sha256" in message
    assert message.endswith(f"of which the first {MAX_ARGUMENTS} are shown)")
    assert len(message) < MAX_ARGUMENTS + 200


@pytest.mark.slow
@settings(max_examples=scale_examples(50), deadline=None)
@given(
    states=st.lists(st.none() | st.text() | JSON.map(json.dumps), max_size=4),
    responses=st.dictionaries(st.text(), JSON),
)
async def test_the_state_of_a_server_travels_inside_ours_and_is_never_an_approval(
    states: list[str | None], responses: dict[str, Any]
) -> None:
    """Each round the server asks again with another state, which may look like one of ours."""
    approvals = build_approvals(WRITES)
    question = await get_question(approvals, {})
    forged = json.loads(question.raw["requestState"])
    forged["approved"] = forged.pop("question")
    relay = answer_again(question.raw["requestState"], {**responses, QUESTION_KEY: ALLOW})
    for state in [*states, json.dumps(forged)]:
        approved = await approvals.obtain(WRITER, {}, relay)
        needed = {"resultType": "input_required", "inputRequests": {}} | (
            {} if state is None else {"requestState": state}
        )
        kept = approved.keep_state(CallResult(needed)).raw
        relay = answer_again(kept["requestState"], responses)
        passed = build_approvals(NEVER).obtain(WRITER, {}, relay)
        expected = {"inputResponses": responses} | ({} if state is None else {"requestState": state})
        assert (await passed).relay.answers == expected
    unapproved = (await build_approvals(NEVER).obtain(WRITER, {}, MODERN)).keep_state(CallResult(needed)).raw
    with pytest.raises(ApprovalRequired) as again:
        await approvals.obtain(WRITER, {}, answer_again(unapproved["requestState"], responses))
    assert again.value.question is not None


async def test_results_pass_unchanged_where_no_state_is_needed() -> None:
    free = await build_approvals().obtain(WRITER, {}, MODERN)
    bound = await build_approvals(WRITES).obtain(
        WRITER, {}, CallRelay(capabilities={"elicitation": {}}, ask=lambda *_: asyncio.sleep(0, ALLOW))
    )
    results: list[dict[str, Any]] = [{"content": []}, {"content": [], "requestState": "odd"}]
    for raw in results:
        assert free.keep_state(CallResult(raw)).raw == raw
        assert bound.keep_state(CallResult(raw)).raw == raw
    asks: dict[str, Any] = {"resultType": "input_required", "inputRequests": {}}
    assert free.keep_state(CallResult(asks)).raw == asks
    assert "requestState" in bound.keep_state(CallResult(asks)).raw
