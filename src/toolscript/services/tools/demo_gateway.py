"""The gateway of the demo catalogue. Its tools have no servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.domain.errors import Unavailable
from toolscript.domain.servers import NO_RELAY, CallRelay, CallResult, CallState
from toolscript.services.servers.gateway import Gateway


class DemoGateway(Gateway):
    """A gateway without servers: hits say so, and so does every call."""

    def find_call_state(self, server: str) -> CallState | None:
        return CallState.DEMO if self.find_spec(server) is None else super().find_call_state(server)

    async def call(
        self, item: Item, arguments: Mapping[str, Any], within: float, relay: CallRelay = NO_RELAY, sent: object = None
    ) -> CallResult:
        if self.find_spec(item.server) is None:
            raise build_refusal(item.id)
        return await super().call(item, arguments, within, relay, sent)


def build_refusal(item_id: str) -> Unavailable:
    """The error of a call of a demo tool."""
    return Unavailable(
        f"{item_id} is a tool of the demo catalogue and has no server: it cannot be called. Configure servers with "
        "`toolscript setup` or `toolscript servers add`",
        details={"tool": item_id},
    )
