"""The host of one run: answers the program's calls, counts them, and keeps what it prints."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from typing import Any

from toolscript.codegen.signatures import format_signature
from toolscript.domain.access import Caller
from toolscript.domain.audit import OK
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Forbidden, InvalidArguments, NotFound, ToolscriptError
from toolscript.domain.limits import current_limits
from toolscript.domain.programs import CallRecord, Language, LimitReached, RunEnd, RunLimits
from toolscript.domain.requests import current_request, set_request
from toolscript.domain.search import MAX_CLOSEST
from toolscript.domain.servers import CallRelay, CallResult
from toolscript.services.code.budget import RunBudget
from toolscript.services.code.sessions import SessionResults
from toolscript.services.code.toolset import Toolsets
from toolscript.services.tools.call import CallTool
from toolscript.services.tools.feedback import Feedback
from toolscript.services.tools.hybrid_search import ToolSearch

PARALLEL_CALLS = 10
MAX_FOUND = 20
# Of a query or an id.
MAX_TEXT_LENGTH = 10_000
CANCELLED = "CANCELLED"
RUN_CODE = "run_code"


@dataclass(frozen=True, slots=True)
class HostServices:
    """What programs can ask for."""

    call_tool: CallTool
    search: ToolSearch
    feedback: Feedback
    toolsets: Toolsets
    sessions: SessionResults
    threshold: float
    """The confidence from which on a result of a search is confident."""


@dataclass(frozen=True, slots=True, eq=False)
class RunCaller:
    """Who runs a program: what its calls pass on, and what its key allows."""

    caller: Caller
    relay: CallRelay
    may_search: bool
    is_counted: bool = False
    """Whether the run is a call of a tool, which the caller's limits have counted."""
    may_change: bool = True
    """Whether the program may call tools that are not read-only."""


class RunHost:
    """Answers one program, on behalf of its caller."""

    def __init__(
        self,
        services: HostServices,
        run_caller: RunCaller,
        language: Language,
        limits: RunLimits,
        session: str | None,
        name: str = RUN_CODE,
    ) -> None:
        """`name` is what the audit calls the program."""
        self._services = services
        self._caller = run_caller
        self._language = language
        self._limits = limits
        self._session = session
        # A sandbox may call from anywhere; the profile and the name of the caller are those of the run.
        self._context = copy_context()
        self._context.run(current_host.set, self)
        self._context.run(set_request, replace(current_request(), calling_program=name))
        parent = current_host.get()
        self.depth = count_waiting_programs()
        self.budget: RunBudget = parent.budget if parent else RunBudget(limits)
        self._call_slots = asyncio.Semaphore(PARALLEL_CALLS)
        # Large results take seconds of a thread that all runs share: one of each run at a time.
        self._result_turn = asyncio.Lock()
        self._steps = 0
        self._output: list[str] = []
        self._output_bytes = 0
        self.calls: list[CallRecord] = []
        self.has_begun = False
        self.deadline: Deadline | None = None
        """The wall time of the run from its beginning: it stands still while a person is asked."""

    def begin(self) -> None:
        """Lets the time of the program begin."""
        self.has_begun = True
        if self.deadline:
            self.deadline.restart(self._limits.seconds)

    def get_rest(self, seconds: float) -> RunLimits:
        """The limits of a workflow that the program calls now and that may take so many seconds. Raises
        InvalidArguments when there is no processor time left."""
        left = self.deadline.seconds_left if self.deadline else self._limits.seconds
        return self.budget.get_rest(seconds, left)

    @property
    def may_change(self) -> bool:
        """Whether the program may call tools that may change something."""
        return self._caller.may_change

    @property
    def printed(self) -> str:
        """What the program has printed so far."""
        return "".join(self._output)

    def take_output(self, text: str) -> None:
        """Keeps what the program prints, up to the limit. Raises LimitReached."""
        size, left = len(text.encode("utf-8", "replace")), self._limits.output_bytes - self._output_bytes
        self._output_bytes += size
        self._output.append(text if size <= left else text.encode("utf-8", "replace")[:left].decode("utf-8", "ignore"))
        if size > left:
            raise LimitReached(
                RunEnd.OUTPUT, f"the program printed more than {self._limits.output_bytes} bytes: print less"
            )

    def count_call(self) -> None:
        """Counts a call, also in the run that calls this workflow. Raises LimitReached."""
        self.budget.count_call()

    async def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Answers a call. Raises ToolscriptError for the program."""
        return await asyncio.create_task(self._answer(function, arguments), context=self._context.copy())

    async def _answer(self, function: str, arguments: Mapping[str, Any]) -> Any:
        answers: dict[str, Callable[[Mapping[str, Any]], Coroutine[Any, Any, Any]]] = {
            "call_tool": self._call_tool,
            "search_tools": self._search_tools,
            "describe_tool": self._describe_tool,
            "save_result": self._save_result,
            "load_result": self._load_result,
        }
        if function not in answers:
            raise InvalidArguments(f"no such function of the host: {function[:100]!r}: use {', '.join(answers)}")
        tool_id = arguments.get("tool_id")
        name = tool_id if function == "call_tool" and isinstance(tool_id, str) else function
        began, outcome = time.perf_counter(), CANCELLED
        try:
            async with self._call_slots:
                answer = await answers[function](arguments)
            outcome = OK
        except ToolscriptError as error:
            outcome = error.code
            raise
        finally:
            self.calls.append(CallRecord(name[:256], outcome, (time.perf_counter() - began) * 1000))
        await self._report_step(f"{name}: done")
        return answer

    async def _call_tool(self, arguments: Mapping[str, Any]) -> Any:
        tool_id = _get_text(arguments, "tool_id")
        given = arguments.get("arguments")
        if not self._caller.may_change:
            item = await self._services.call_tool.describe(tool_id)
            if not item.is_read_only:
                raise Forbidden(
                    f"{item.id} may change something, and this workflow is read-only, because all tools that its "
                    "program named were so when it was saved: name the tool in the program, and save it again",
                    details={"tool": item.id},
                )
        result = await self._services.call_tool.call(
            tool_id, {} if given is None else given, relay=self._build_relay(tool_id)
        )
        self._services.feedback.note_call(self._caller.caller, tool_id)
        return get_value(result)

    async def _search_tools(self, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        self._require_search()
        query, limit = _get_text(arguments, "query"), arguments.get("limit", 5)
        if type(limit) is not int or not 1 <= limit <= MAX_FOUND:
            raise InvalidArguments(f"limit: must be a whole number from 1 to {MAX_FOUND}", details={"field": "limit"})
        search, threshold = self._services.search, self._services.threshold
        found = await search.search(
            query, limit=limit, threshold=threshold, item_type=ItemType.TOOL, closest=MAX_CLOSEST
        )
        hits = [*found.hits, *found.closest]
        ids = [hit.id for hit in hits]
        self._services.feedback.note_search(self._caller.caller, query, ids)
        calls = await self._services.toolsets.name_calls(self._language, ids)
        items: dict[str, Item] = {}
        for each in calls:
            with suppress(NotFound):  # it may have been removed meanwhile
                items[each] = await self._services.call_tool.describe(each)
        # Some 50 ms for each of the worst schemas.
        described = await asyncio.to_thread(lambda: {each: _describe(items[each], calls[each]) for each in items})
        return [
            {
                "id": hit.id,
                "call": calls[hit.id],
                "confidence": hit.confidence,
                "is_confident": hit.confidence >= threshold,
                **described[hit.id],
            }
            for hit in hits
            if hit.id in described
        ]

    async def _describe_tool(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._require_search()
        item = await self._services.call_tool.describe(_get_text(arguments, "tool_id"))
        calls = await self._services.toolsets.name_calls(self._language, [item.id])
        return {
            "id": item.id,
            "call": calls.get(item.id),
            **await asyncio.to_thread(_describe, item, calls.get(item.id, "")),
            "input_schema": item.input_schema,
            "output_schema": item.output_schema,
        }

    async def _save_result(self, arguments: Mapping[str, Any]) -> None:
        user, value = self._caller.relay.user or "", arguments.get("value")
        async with self._result_turn:
            await self._services.sessions.save(self._session, user, arguments.get("name"), value)

    async def _load_result(self, arguments: Mapping[str, Any]) -> Any:
        user = self._caller.relay.user or ""
        async with self._result_turn:
            return await self._services.sessions.load(self._session, user, arguments.get("name"))

    def _require_search(self) -> None:
        if not self._caller.may_search:
            raise Forbidden(
                "this key or token may not search and describe tools: it lacks the scope search",
                details={"scope": "search"},
            )

    def _build_relay(self, tool_id: str) -> CallRelay:
        """A program cannot be called again with answers, so its caller is asked only while it waits."""
        relay = self._caller.relay

        async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
            share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
            await self._report_step(f"{tool_id}: {message or share}")

        async def ask(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            if relay.ask is None:
                return {}
            with self.deadline.pause(current_limits().answer) if self.deadline else nullcontext():
                return await relay.ask(method, params)

        return replace(
            relay,
            on_progress=report if relay.on_progress else None,
            answers={},
            capabilities=relay.capabilities if relay.ask else None,
            ask=ask if relay.ask else None,
        )

    async def _report_step(self, message: str) -> None:
        """Progress only grows, also while several calls run."""
        if self._caller.relay.on_progress:
            self._steps += 1
            await self._caller.relay.on_progress(float(self._steps), None, message)


current_host: ContextVar[RunHost | None] = ContextVar("current_host", default=None)
"""The host of the program that makes the current call; None for calls of others."""


def count_waiting_programs() -> int:
    """The number of programs that wait for a program started now: the program that calls it as a workflow, that
    program's caller, and so on."""
    host = current_host.get()
    return host.depth + 1 if host else 0


def get_value(result: CallResult) -> Any:
    """What a call returns to a program, as to a generated client: the structured result, else the content."""
    return result.structured if result.structured is not None else {"content": list(result.content)}


def _describe(item: Item, call: str) -> dict[str, Any]:
    about = {"description": item.description, "signature": format_signature(item, call)}
    return {**about, "quarantined": item.quarantine} if item.quarantine else about


def _get_text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value[:MAX_TEXT_LENGTH].strip():
        raise InvalidArguments(f"{name}: must be a string that is not blank", details={"field": name})
    if len(value) > MAX_TEXT_LENGTH:
        raise InvalidArguments(f"{name}: must have at most {MAX_TEXT_LENGTH} characters", details={"field": name})
    return value
