"""A person's approval before each call of a tool that may change something.

The caller's client asks the question, as an elicitation. Clients of 2026-07-28 get it as the result of the call, and
call again with the answer; what was asked is in the state of the call. The surface seals the state for this caller and
these arguments. Older clients are asked while the call waits. Calls of clients that cannot ask wait in the store. A
server that then needs input too has its own state inside ours, so that the call is not approved twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from toolscript.domain.access import ApprovalPolicy
from toolscript.domain.catalog import Item
from toolscript.domain.errors import ApprovalDeclined, ApprovalRequired, TimedOut, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.quarantine import make_visible
from toolscript.domain.redaction import redact_arguments
from toolscript.domain.requests import current_request
from toolscript.domain.servers import Ask, CallRelay, CallResult
from toolscript.ports.access import ApprovalStore
from toolscript.services.catalogue.visibility import Visibility
from toolscript.services.tools.pending_calls import PendingCalls

QUESTION_KEY = "toolscript_approval"
MAX_ARGUMENTS = 2000
# Of a call that waits. An invisible character is written with up to ten, so that is at most 80 kB in the store.
MAX_PENDING_ARGUMENTS = 8000
_METHOD = "elicitation/create"
_STRICTNESS = tuple(ApprovalPolicy)
_FORM = {
    "type": "object",
    "properties": {"allow": {"type": "boolean", "title": "Allow this call", "default": False}},
    "required": ["allow"],
}


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call that may go on to its server."""

    relay: CallRelay
    """With the answers to the server's own questions alone."""
    binding: str | None = None
    """What was approved; None where no approval was needed."""
    until: float = 0.0

    def keep_state(self, result: CallResult) -> CallResult:
        """The result; if the server needs input, its state is inside ours. Each server's state is, so that none can
        write a state that reads as an approval."""
        state = result.raw.get("requestState")
        if not result.needs_input or (state is None and self.binding is None):
            return result
        kept: dict[str, Any] = {"state": state}
        if self.binding is not None:
            kept |= _build_ticket("approved", self.binding, self.until)
        return CallResult({**result.raw, "requestState": json.dumps(kept)})


class Approvals:
    """Asks for approvals. An answer counts once, for one call: the same tool, definition and arguments."""

    def __init__(
        self,
        policy: ApprovalPolicy,
        get_server_policy: Callable[[str], ApprovalPolicy],
        visibility: Visibility,
        store: ApprovalStore,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`policy` is the gateway's; the policies of a server and of the caller's profile can be stricter."""
        self._policy = policy
        self._get_server_policy = get_server_policy
        self._visibility = visibility
        self._store = store
        self._clock = clock
        self.pending = PendingCalls(store, clock)

    def are_needed(self, item: Item) -> bool:
        """Whether the caller of the current request needs an approval for each call of the item."""
        profile = self._visibility.find_profile(current_request())
        policies = [self._policy, self._get_server_policy(item.server), *([profile.approval] if profile else [])]
        match max(policies, key=_STRICTNESS.index):
            case ApprovalPolicy.NEVER:
                return False
            case ApprovalPolicy.DESTRUCTIVE:
                return not item.is_read_only and (item.annotations or {}).get("destructiveHint") is not False
            case ApprovalPolicy.WRITES:
                return not item.is_read_only

    async def obtain(
        self,
        item: Item,
        arguments: Mapping[str, Any],
        relay: CallRelay,
        list_secrets: Callable[[], Sequence[str]] = tuple,
    ) -> ApprovedCall:
        """The call as it goes on, approved where that is needed. Nobody is shown the secrets of the configuration that
        `list_secrets` returns.

        Raises ApprovalRequired with the question, or without one if the caller cannot be asked, so that the call waits
        for a person, or if its approval is not valid; ApprovalDeclined; TimedOut if an older client does not answer;
        Unavailable if the store does not.
        """
        state = _read_state(relay.answers) if relay.answers else {}
        passed = replace(relay, answers=_find_server_answers(state, relay.answers)) if relay.answers else relay
        has_ticket = "approved" in state or "question" in state
        if not has_ticket and not self.are_needed(item):
            return ApprovedCall(passed)
        binding, until = _bind(item, arguments), self._clock() + current_limits().approval
        if has_ticket:  # also where no approval is needed any more: a person may have declined
            await self._use_up(item, binding, state)
            if "question" in state:
                responses = relay.answers.get("inputResponses")
                _require_consent(item, responses.get(QUESTION_KEY) if isinstance(responses, Mapping) else None)
            return ApprovedCall(passed, binding, until)
        text = json.dumps(redact_arguments(arguments, secrets=list_secrets()), ensure_ascii=False, indent=2)
        if not _can_show_forms(relay):
            await self._let_wait(item, binding, text, "this caller cannot be asked")
        elif relay.ask is None:
            raise ApprovalRequired(
                f"{item.id} needs a person's approval before each call: answer the question, and call it again",
                question=_build_question(item, text, json.dumps(_build_ticket("question", binding, until))),
                details=_name(item),
            )
        else:
            await self._ask(item, binding, text, relay.ask)
        return ApprovedCall(replace(passed, answers={}), binding, until)

    async def _let_wait(self, item: Item, binding: str, text: str, why: str) -> None:
        await self.pending.use_approval(item, binding, _cut(text, MAX_PENDING_ARGUMENTS), why)

    async def _ask(self, item: Item, binding: str, text: str, ask: Ask) -> None:
        """Asks an older client while the call waits. Raises as `obtain` does."""
        try:
            async with asyncio.timeout(current_limits().approval):
                answer = await ask(_METHOD, _build_form(item, text))
        except TimeoutError:
            raise TimedOut(
                f"{item.id} was not called: nobody approved it within {current_limits().approval / 60:g} minutes",
                details={**_name(item), "seconds": current_limits().approval},
            ) from None
        except Exception as error:  # noqa: BLE001  (the client's, of a package that only surfaces know)
            why = f"its caller's client could not ask for approval ({error})"
            await self._let_wait(item, binding, text, why)
        else:
            _require_consent(item, answer)

    async def _use_up(self, item: Item, binding: str, state: Mapping[str, Any]) -> None:
        """Raises ApprovalRequired unless the state is for this call, in time, and used for the first time."""
        now, until = self._clock(), state.get("until", 0.0)
        ticket = str(state.get("approved") or state.get("question"))
        if state.get("for") != binding or not until > now or not await self._use_ticket(ticket, now, until):
            raise ApprovalRequired(
                f"the approval of {item.id} was used already, is older than {current_limits().approval / 60:g} "
                "minutes, or is for another call: call it again without requestState, to ask again",
                details=_name(item),
            )

    async def _use_ticket(self, ticket: str, now: float, until: float) -> bool:
        """Whether it was not used before. Raises Unavailable: without the store nobody knows."""
        try:
            async with asyncio.timeout(current_limits().approval_store):
                return await self._store.use(ticket, now=now, expires_at=until)
        except TimeoutError:
            raise Unavailable(
                f"the store did not answer within {current_limits().approval_store:g} s, so the approval could not "
                "be checked: call the tool again without requestState",
                details={"store": "sql"},
            ) from None


def _can_show_forms(relay: CallRelay) -> bool:
    """Whether the caller's client shows forms. A client that says nothing about modes does."""
    modes = (relay.capabilities or {}).get("elicitation")
    return isinstance(modes, Mapping) and (not modes or "form" in modes)


def _require_consent(item: Item, answer: Any) -> None:
    """Raises ApprovalDeclined unless the person has allowed the call."""
    answer = answer if isinstance(answer, Mapping) else {}
    content = answer.get("content")
    if answer.get("action") == "accept" and isinstance(content, Mapping) and content.get("allow") is True:
        return
    how = "closed the question" if answer.get("action") == "cancel" else "declined it"
    raise ApprovalDeclined(
        f"{item.id} was not called: the user {how}; call it again only if the user asks for it", details=_name(item)
    )


def _build_question(item: Item, text: str, state: str) -> CallResult:
    questions = {QUESTION_KEY: {"method": _METHOD, "params": _build_form(item, text)}}
    return CallResult({"resultType": "input_required", "inputRequests": questions, "requestState": state})


def _build_form(item: Item, text: str) -> dict[str, Any]:
    """The question as a person reads it, with the arguments as JSON without secrets."""
    name, server = make_visible(item.id, keep=""), make_visible(item.server, keep="")
    message = f"Allow {name} (of the server {server}) with these arguments?\n{_cut(text, MAX_ARGUMENTS)}"
    return {"message": message, "requestedSchema": _FORM}


def _cut(text: str, limit: int) -> str:
    """The beginning of the text, with invisible characters made visible."""
    if len(text) > limit:
        text = f"{text[:limit]}… ({len(text)} characters, of which the first {limit} are shown)"
    return make_visible(text)


def _bind(item: Item, arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([item.digest, arguments], sort_keys=True).encode()).hexdigest()


def _build_ticket(kind: str, binding: str, until: float) -> dict[str, Any]:
    return {kind: secrets.token_urlsafe(16), "for": binding, "until": until}


def _read_state(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The state that `keep_state` or a question has written; empty for any other."""
    with suppress(ValueError, TypeError):
        state = json.loads(answers.get("requestState", ""))
        return state if isinstance(state, dict) else {}
    return {}


def _find_server_answers(state: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller answers to the server's own questions: nothing, if the question was ours."""
    if "question" in state:
        return {}
    fields = {"inputResponses": answers.get("inputResponses"), "requestState": state.get("state")}
    return {name: value for name, value in fields.items() if value is not None}


def _name(item: Item) -> dict[str, Any]:
    return {"tool": item.id, "server": item.server}
