"""The workflows as a server behind the gateway, in this process: what holds for tools of servers holds for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from toolscript.domain.access import Caller, Scope
from toolscript.domain.catalog import Item
from toolscript.domain.errors import ToolscriptError
from toolscript.domain.programs import RunEnd, RunReport, Workflow
from toolscript.domain.requests import current_request
from toolscript.domain.servers import NO_RELAY, CallRelay, CallResult, ServerListing
from toolscript.ports.servers import ToolServer
from toolscript.services.code.host import RunCaller
from toolscript.services.code.workflows import Workflows

# The rest is for the checks of arguments and program.
OWN_SHARE = 0.95
# A saved workflow was right, so tools are gone or hidden from this caller, who must not learn their names from it.
HIDDEN_TOOLS = (
    "this workflow calls tools that you cannot use, or that no longer exist: who saves it again with "
    "`toolscript workflows save` gets a list of those that are gone"
)


class WorkflowServer(ToolServer):
    """Lists workflows, and calls them."""

    def __init__(self, workflows: Workflows) -> None:
        self._workflows = workflows
        self._changed = asyncio.Event()
        workflows.watch(self._changed.set)

    async def list_items(self) -> ServerListing:
        return await self._workflows.list_items()

    async def call(
        self, item: Item, arguments: Mapping[str, Any], *, within: float, relay: CallRelay = NO_RELAY
    ) -> CallResult:
        """Whatever goes wrong is a result: the server itself never fails."""
        request = current_request()
        name = request.caller_name
        caller = Caller(name, "" if name else request.client_address)
        run_caller = RunCaller(caller, relay, Scope.SEARCH in request.scopes, is_counted=True)
        # Its own limit comes first, whose report says what was printed; questions stop the clocks of both.
        try:
            workflow = await self._workflows.get(item.name)
            report = await self._workflows.run(workflow, arguments, run_caller, seconds=OWN_SHARE * within)
        except ToolscriptError as error:
            return _build_failure(error.message)
        return _build_result(workflow, report)

    async def wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()


def _build_result(workflow: Workflow, report: RunReport) -> CallResult:
    if report.outcome.end is RunEnd.REJECTED and current_request().profile:
        return _build_failure(HIDDEN_TOOLS)
    if report.outcome.end is not RunEnd.DONE:
        printed = f"\nPrinted:\n{report.printed}" if report.printed else ""
        return _build_failure(f"{report.outcome.sentence}{printed}")
    value = report.outcome.value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    structured = workflow.build_structured(value)
    return CallResult({"content": [{"type": "text", "text": text}], "structuredContent": structured})


def _build_failure(message: str) -> CallResult:
    return CallResult({"content": [{"type": "text", "text": message}], "isError": True})
