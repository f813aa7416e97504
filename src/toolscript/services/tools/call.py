"""Describes and calls tools that a search can find. Other tools cannot be called."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import (
    InvalidArguments,
    NotFound,
    TimedOut,
    ToolFailed,
    ToolscriptError,
    Unavailable,
)
from toolscript.domain.limits import current_limits
from toolscript.domain.quarantine import require_released
from toolscript.domain.requests import current_request
from toolscript.domain.search import SearchReport, no_span
from toolscript.domain.servers import NO_RELAY, CallRelay, CallResult
from toolscript.ports.observability import EventSink
from toolscript.ports.schemas import ArgumentChecker
from toolscript.ports.stores import ItemStore
from toolscript.retrieval.text.words import replace_unencodable
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.visibility import Visibility
from toolscript.services.servers.gateway import Gateway
from toolscript.services.servers.starting_servers import StartingServers
from toolscript.services.support.configured_secrets import list_configured_secrets
from toolscript.services.support.fixed_arguments import fill_arguments
from toolscript.services.support.search_events import (
    MAX_NAME,
    describe_arguments,
    measure_json,
    record_event,
    record_search,
    work_on,
)
from toolscript.services.tools.approval import Approvals
from toolscript.services.tools.hybrid_search import ToolSearch

NEAREST = 3
# Of the time of a call, so that most is left for the tool: waiting for the worker and for other checks, and the check.
CHECK_SHARE = 0.25

log = logging.getLogger(__name__)


class CallTool:
    """Describes and calls one tool at a time."""

    def __init__(
        self,
        item_store: ItemStore,
        snapshots: CatalogueSnapshots,
        gateway: Gateway,
        search: ToolSearch,
        checker: ArgumentChecker,
        events: EventSink,
        span: Callable[[str], AbstractContextManager[object]] = no_span,
        *,
        visibility: Visibility,
        approvals: Approvals,
        digests_arguments: bool = True,
    ) -> None:
        """With `digests_arguments` events have a digest of a call's arguments, otherwise them without their secrets."""
        self._item_store = item_store
        self._snapshots = snapshots
        self._gateway = gateway
        self._search = search
        self._checker = checker
        self._events = events
        self._span = span
        self._digests_arguments = digests_arguments
        self._visibility = visibility
        self._starting = StartingServers(gateway, visibility)
        self._approvals = approvals

    async def describe(self, item_id: str) -> Item:
        """The item, with its schemas: from memory where the catalogue has been read, so that calls need no store. While
        the gateway starts, waits for the configuration, and for the server of an item that is not known yet. Raises
        NotFound, naming the nearest ids, also for an item that the caller may not see; Unavailable when the store fails
        and the item has never been read."""
        item_id = replace_unencodable(item_id)  # arguments of commands can have bytes that are not UTF-8
        await self._gateway.wait_until_configured()
        item = await self._find_item(item_id)
        if item is None:
            await self._starting.wait_for_item(item_id)
            item = await self._find_item(item_id)
        if item is not None and await self._visibility.shows(item, current_request()):
            return item
        near = await self._find_similar(item_id)
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        raise NotFound(f"no such tool: {item_id!r}{hint}", details={"tool": item_id, "nearest": near})

    async def call(
        self, item_id: str, arguments: Any, *, within: float | None = None, relay: CallRelay = NO_RELAY
    ) -> CallResult:
        """The tool's result, within that many seconds.

        Raises NotFound, Quarantined, InvalidArguments (naming the field), ApprovalRequired (with the question, if the
        caller can be asked; otherwise the call waits), ApprovalDeclined, ToolFailed with the tool's own result,
        UpstreamFailed with the server's own message, Conflict where the configuration of the arguments changes
        meanwhile, TimedOut, or Unavailable.
        """
        event = {"tool": item_id[:MAX_NAME], "server": "", "arguments": "", "arguments_checked": True, "bytes": 0}
        record, context = partial(record_event, self._events), current_request()
        with self._span("tools.call"), record_search(record, "tools.call", SearchReport(), lambda: event, context):
            deadline = Deadline(within or self._gateway.call_timeout, item_id)
            async with deadline.limit():
                item = await self.describe(item_id)
            event |= {"tool": item.id, "server": item.server}
            require_released(item)
            if not isinstance(arguments, Mapping):
                raise InvalidArguments(
                    f"the arguments of {item_id} must be a JSON object", details={"field": "", "allowed": "an object"}
                )
            _require_json(arguments)
            secrets = () if self._digests_arguments else self._list_secrets()
            describe = partial(describe_arguments, as_digest=self._digests_arguments, secrets=secrets)
            event["arguments"] = await work_on(arguments, describe)
            spec = self._gateway.find_spec(item.server)
            filled = fill_arguments(spec.tools, item, arguments) if spec else arguments
            if filled is not arguments:
                event["arguments"] = await work_on(filled, describe)
            async with deadline.limit():
                event["arguments_checked"] = await self._check(item, arguments, deadline.seconds)
            relay = _exclude_answers(relay, deadline)
            approved = await self._approvals.obtain(item, filled, relay, self._list_secrets)
            async with deadline.limit():
                result = approved.keep_state(
                    await self._gateway.call(item, arguments, deadline.seconds, approved.relay, filled)
                )
            event["bytes"] = await work_on(result.raw, measure_json)
            if result.is_error:
                reason = result.text or "the server gave no reason"
                raise ToolFailed(f"{item_id} failed: {reason}", result=result, details={"server": item.server})
        return result

    def _list_secrets(self) -> list[str]:
        return list_configured_secrets(self._gateway.specs.values())

    async def _find_item(self, item_id: str) -> Item | None:
        if item := self._snapshots.find_item(item_id):
            return item
        try:
            items = await self._item_store.get_items([item_id])
        except Unavailable:
            if item := self._snapshots.find_item(item_id, outdated=True):
                return item
            raise
        return items[0].item if items else None

    async def _check(self, item: Item, arguments: Mapping[str, Any], within: float) -> bool:
        """Whether the arguments could be checked. Raises InvalidArguments for invalid arguments."""
        if not item.input_schema:
            return True
        try:
            async with asyncio.timeout(min(current_limits().argument_check, CHECK_SHARE * within)):
                problem = await self._checker.check(item.input_schema, arguments)
        except (TimedOut, Unavailable, TimeoutError) as error:  # the tool's own server checks them too
            reason = error.message if isinstance(error, ToolscriptError) else "the check took too long"
            log.warning("arguments_not_checked", extra={"tool": item.id, "reason": reason})
            return False
        if problem:
            raise InvalidArguments(
                f"{problem.field or 'arguments'}: {problem.message}",
                details={"field": problem.field, "problem": problem.message, "tool": item.id},
            )
        return True

    async def _find_similar(self, item_id: str) -> list[str]:
        try:
            results = await self._search.search(item_id[:200], limit=NEAREST, threshold=0.0, recorded=False)
        except ToolscriptError:
            return []
        return [hit.id for hit in results.hits]


def _exclude_answers(relay: CallRelay, deadline: Deadline) -> CallRelay:
    """The relay. The time of its questions does not count."""
    if relay.ask is None:
        return relay

    put_question = relay.ask

    async def ask(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        with deadline.pause(current_limits().answer):
            return await put_question(method, params)

    return replace(relay, ask=ask)


def _require_json(arguments: Mapping[str, Any]) -> None:
    """Raises InvalidArguments for values that JSON cannot express: NaN, infinity, lone surrogates."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are not valid JSON: {error}", details={"field": ""}) from error
