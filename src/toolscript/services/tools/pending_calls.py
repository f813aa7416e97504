"""Calls that wait for a person, because their caller's client cannot ask: a person decides in the console or with
`toolscript approvals`, and the caller repeats the call.

An approval counts once, for the same caller with the same tool, definition and arguments. Who made a call cannot decide
about it, except the owner of the data folder, who is a person.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

from toolscript.domain.access import PendingCall, PendingState
from toolscript.domain.catalog import Item
from toolscript.domain.errors import ApprovalDeclined, ApprovalRequired, Conflict, Forbidden, NotFound, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.requests import current_request
from toolscript.ports.access import ApprovalStore

# How long a call waits for a decision, and an approval for the call that uses it.
WAITING_SECONDS = 900.0
APPROVED_SECONDS = 600.0
MAX_WAITING = 20
# Without letters and digits that look alike.
ID_LETTERS, ID_LENGTH = "23456789abcdefghjkmnpqrstuvwxyz", 6

log = logging.getLogger(__name__)


class PendingCalls:
    """The calls that wait for a decision."""

    def __init__(self, store: ApprovalStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def use_approval(self, item: Item, binding: str, arguments: str, why: str) -> None:
        """Uses the approval of this call by the current caller. `binding` identifies the call, `arguments` is what a
        person reads, and `why` says why its caller was not asked.

        Raises ApprovalRequired for a call that waits from now on, or still does; ApprovalDeclined, once, for one that a
        person has declined; Unavailable if the store does not answer.
        """
        now = self._clock()
        call = await self._submit(item, binding, arguments, now)
        about = {"tool": item.id, "server": item.server}
        match call.state:
            case PendingState.APPROVED:
                return
            case PendingState.DECLINED:
                raise ApprovalDeclined(
                    f"{item.id} was not called: a person declined it; call it again only if the user asks for it",
                    details=about,
                )
        minutes = max(1, round((call.expires_at - now) / 60))
        raise ApprovalRequired(
            f"{item.id} needs a person's approval before each call, and {why}. The call waits as {call.id} for another "
            f"{minutes} min: ask a person to approve it, with `toolscript approvals approve {call.id}` or on the page "
            "Access of the console, and repeat the same call after it is approved",
            details={**about, "approval": call.id},
        )

    async def list_waiting(self) -> list[PendingCall]:
        """The calls that nobody has decided about, the oldest first."""
        return await self._store.list_waiting(now=self._clock())

    async def decide(self, call_id: str, state: PendingState, *, decider: str | None) -> PendingCall:
        """Approves a call, so that its caller can repeat it once, within ten minutes, or declines it. Its caller learns
        of the decline once. `decider` is the name of the deciding caller's share; None for the owner of the data
        folder.

        Raises NotFound; Conflict if it was decided already; Forbidden for the caller of the call.
        """
        call_id, now = call_id.strip().lower(), self._clock()
        call = await self._find(call_id, now)
        if decider == call.caller:
            raise Forbidden(
                f"{call_id} was called with this key, which cannot decide about its own calls: use `toolscript "
                "approvals` on the gateway's machine, or another key with the scope admin",
                details={"id": call_id},
            )
        if not await self._store.decide(call_id, state, now=now, expires_at=now + APPROVED_SECONDS):
            call = await self._find(call_id, now)
            raise Conflict(f"{call_id} is {call.state} already", details={"id": call_id, "state": call.state.value})
        log.info("call_decided", extra={"tool": call.tool_id, "state": state.value, "by": decider or "owner"})
        return await self._find(call_id, now)

    async def _find(self, call_id: str, now: float) -> PendingCall:
        if call := await self._store.find_call(call_id, now=now):
            return call
        raise NotFound(
            f"no such call: {call_id[:40]!r}. It was repeated after its approval, it has waited for more than "
            f"{WAITING_SECONDS / 60:g} minutes, or the id is wrong: `toolscript approvals` lists those that wait",
            details={"id": call_id[:40]},
        )

    async def _submit(self, item: Item, binding: str, arguments: str, now: float) -> PendingCall:
        request = current_request()
        caller, profile = request.share_holder.name, request.profile or ""
        pending = None
        try:
            async with asyncio.timeout(current_limits().approval_store):
                while pending is None:  # another call may have the id
                    call_id = "".join(secrets.choice(ID_LETTERS) for _ in range(ID_LENGTH))
                    call = PendingCall(
                        call_id,
                        binding,
                        caller,
                        profile,
                        item.id,
                        item.server,
                        arguments,
                        created_at=now,
                        expires_at=now + WAITING_SECONDS,
                    )
                    pending = await self._store.submit(call, limit=MAX_WAITING)
        except TimeoutError:
            raise Unavailable(
                f"the store did not answer within {current_limits().approval_store:g} s, so the approval could not "
                "be checked: call the tool again",
                details={"store": "sql"},
            ) from None
        return pending
