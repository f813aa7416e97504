"""Runs programs: resolves the tools that they name, checks their types, and runs them within limits."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import Any
from weakref import WeakValueDictionary

from toolscript.domain.access import Caller
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import InvalidArguments, NotFound, Unavailable
from toolscript.domain.lru_cache import LruCache
from toolscript.domain.programs import (
    DEFAULT_LIMITS,
    MAX_LIMITS,
    Language,
    LimitReached,
    Program,
    ProgramOutcome,
    ProgramProblem,
    RunEnd,
    RunLimits,
    RunProblem,
    RunReport,
    SandboxLimits,
)
from toolscript.domain.requests import current_request, use_request
from toolscript.domain.search import SearchReport, no_span
from toolscript.ports.observability import EventSink
from toolscript.ports.sandboxes import Sandbox
from toolscript.services.code.host import RUN_CODE, HostServices, RunCaller, RunHost, count_waiting_programs
from toolscript.services.code.slots import RunSlots
from toolscript.services.code.toolset import MAX_PROBLEMS, Toolset
from toolscript.services.support.call_admission import CallAdmission
from toolscript.services.support.search_events import build_event, describe_arguments, record_event, record_search

EVENT = "code.run"
MAX_SOURCE_BYTES = 100_000
MAX_SESSION_LENGTH = 200
CHECK_SECONDS = 15.0
START_SECONDS = 30.0
# A check takes 5 to 60 ms, and programs that are saved run again and again.
MAX_CHECKED_PROGRAMS = 1000
_ADVICE = {
    RunEnd.CPU: "compute less, or raise the limit `cpu_seconds`",
    RunEnd.MEMORY: "keep less at a time, or raise the limit `memory_mb`",
}
_NO_TOOLS = re.compile(r"\btools'? is not defined")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A program to run, as its caller sent it."""

    source: str
    language: Language = Language.PYTHON
    limits: RunLimits = DEFAULT_LIMITS
    session: str | None = None
    """Names what runs keep for each other with `save_result`; without one, they keep nothing."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Global variables of the program, with JSON values."""
    input_types: str = ""
    """Their declarations, for the check."""
    checks_only: bool = False
    name: str = RUN_CODE
    """What the audit calls the program. The call of a workflow is an event of its own, so only the others have one."""
    check_value: Callable[[Any], Awaitable[str | None]] | None = None
    """Says what is wrong with the program's value, which fails the run then."""


class RunCode:
    """Runs programs in the sandboxes that are there."""

    def __init__(
        self,
        sandboxes: Mapping[Language, Sandbox],
        states: Mapping[Language, str],
        services: HostServices,
        admission: CallAdmission,
        events: EventSink,
        span: Callable[[str], AbstractContextManager[object]] = no_span,
        *,
        max_limits: RunLimits = MAX_LIMITS,
        digests_programs: bool = True,
        list_secrets: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`states` says of languages without a sandbox how to get one. With `digests_programs` events have a digest of
        a program, otherwise its source without secrets, including secrets in server entries."""
        self._list_secrets = list_secrets
        self._sandboxes = sandboxes
        self._states = states
        self._max_limits = max_limits
        self._services = services
        self._admission = admission
        self._slots = RunSlots()
        self._events = events
        self._span = span
        self._digests_programs = digests_programs
        self._checked_programs: LruCache[bytes, bool] = LruCache(MAX_CHECKED_PROGRAMS)
        # Those of callers without a check are dropped.
        self._checks: WeakValueDictionary[Caller, asyncio.Lock] = WeakValueDictionary()

    async def run(self, request: RunRequest, caller: RunCaller) -> RunReport:
        """Runs a program; a report of a failed run says why, with what was printed and called before.

        Raises NotFound for a language that is not there, InvalidArguments for a program that is empty or too large,
        RateLimited for a caller with too many programs or calls, and Unavailable when the sandbox cannot run.
        """
        sandbox = self._get_sandbox(request.language)
        _check_request(request)
        request = replace(request, limits=request.limits.cap(self._max_limits))
        context = current_request()
        run_id = context.request_id or f"run_{token_hex(8)}"
        context = replace(context, request_id=run_id)
        began, report = time.perf_counter(), SearchReport()
        event = self._build_event(request)
        record = partial(record_event, self._events) if request.name == RUN_CODE else _ignore
        with use_request(context):
            with self._span("code.run"), record_search(record, EVENT, report, lambda: event, context, at_success=False):
                if not caller.is_counted:
                    await self._admission.count_run()
                async with self._slots.take(caller, count_waiting_programs()):
                    host = RunHost(
                        self._services, caller, request.language, request.limits, request.session, request.name
                    )
                    outcome, problems = await self._run(sandbox, request, host, caller.caller)
                    if request.check_value and outcome.end is RunEnd.DONE:
                        outcome = _fail(outcome, await request.check_value(outcome.value))
            event |= {"bytes": len(host.printed), "end": outcome.end.value, "calls": len(host.calls)}
            record(build_event(EVENT, report, event, None if outcome.end is RunEnd.DONE else outcome.end.name, context))
        took_ms = (time.perf_counter() - began) * 1000
        return RunReport(run_id, request.language, outcome, host.printed, host.calls, took_ms, problems)

    def _build_event(self, request: RunRequest) -> dict[str, Any]:
        about = {"code": request.source, "language": request.language.value}
        secrets = () if self._digests_programs else self._list_secrets()
        arguments = describe_arguments(about, as_digest=self._digests_programs, secrets=secrets)
        return {"tool": request.name, "server": "", "arguments": arguments, "bytes": 0}

    async def _run(
        self, sandbox: Sandbox, request: RunRequest, host: RunHost, caller: Caller
    ) -> tuple[ProgramOutcome, list[RunProblem]]:
        toolset = await self._services.toolsets.find(request.language, request.source)
        # Reading the schemas of many tools keeps a core busy.
        types = await asyncio.to_thread(toolset.tools.write_types)
        program = Program(
            request.source,
            toolset.tools.write_bindings(),
            f"{types}\n{request.input_types}",
            request.inputs,
        )
        problems = await self._check(sandbox, program, toolset, caller)
        if problems:
            first = problems[0]
            message = f"line {first.line}: {first.message}"
            return ProgramOutcome(RunEnd.REJECTED, message=message, line=first.line), problems
        if request.checks_only:
            return ProgramOutcome(RunEnd.DONE), []
        began, cpu_seconds = time.perf_counter(), 0.0
        try:
            outcome = await run_within_limits(sandbox, program, host, request.limits)
            cpu_seconds = outcome.cpu_seconds
            return outcome, []
        finally:
            # A program that was ended from outside cannot say how long it was busy.
            elapsed = time.perf_counter() - began
            host.budget.count_cpu(cpu_seconds or min(elapsed, request.limits.cpu_seconds))

    async def _check(self, sandbox: Sandbox, program: Program, toolset: Toolset, caller: Caller) -> list[RunProblem]:
        """What is wrong with a program. One that was right before, with the same types, is not checked again. Of one
        caller, one is checked at a time: all callers wait for the same checker."""
        key = sha256(json.dumps([sandbox.language, program.source, program.types]).encode()).digest()
        if self._checked_programs.find(key):
            return []
        async with self._checks.setdefault(caller, asyncio.Lock()):
            problems = await _find_problems(sandbox, program, toolset)
        if not problems:
            self._checked_programs.keep(key, True)
        return problems

    def _get_sandbox(self, language: Language) -> Sandbox:
        if language in self._sandboxes:
            return self._sandboxes[language]
        others = f"; it runs programs in {', '.join(self._sandboxes)}" if self._sandboxes else ""
        raise NotFound(
            f"this gateway runs no programs in {language}: {self._states[language]}, where the gateway runs{others}",
            details={"field": "language", "allowed": list(self._sandboxes)},
        )


async def run_within_limits(sandbox: Sandbox, program: Program, host: RunHost, limits: RunLimits) -> ProgramOutcome:
    """How the program ends, within its time from its beginning. Raises Unavailable when it does not begin."""
    sandbox_limits = SandboxLimits(limits.cpu_seconds, limits.memory_mb * 2**20, limits.output_bytes)
    host.deadline = Deadline(START_SECONDS)
    timeout = host.deadline.timeout()
    try:
        async with timeout:
            return _add_advice(await sandbox.run(program, host, sandbox_limits))
    except LimitReached as error:
        return ProgramOutcome(error.end, message=error.message)
    except TimeoutError:
        if not timeout.expired():
            raise
        if not host.has_begun:
            raise Unavailable(f"the sandbox did not start within {START_SECONDS:g} s: try again later") from None
        message = f"the program took more than {limits.seconds:g} seconds: do less, or raise the limit `seconds`"
        return ProgramOutcome(RunEnd.TIME, message=message)


def _add_advice(outcome: ProgramOutcome) -> ProgramOutcome:
    """The outcome, with advice in its message where the sandbox has none."""
    advice = _ADVICE.get(outcome.end)
    if outcome.end is RunEnd.FAILED and _NO_TOOLS.search(outcome.message):
        advice = "a program finds only the tools that it names, write `tools.SERVER.NAME`"
    return replace(outcome, message=f"{outcome.message}: {advice}") if advice else outcome


def parse_limits(given: Mapping[str, Any] | None, highest: RunLimits) -> RunLimits:
    """The limits that a caller names, beside the defaults. Raises InvalidArguments, naming the limit."""
    return replace(DEFAULT_LIMITS.cap(highest), **check_limits(given or {}, highest))


def check_limits(given: Mapping[str, Any], highest_limits: RunLimits) -> dict[str, Any]:
    """The limits as numbers of their types. Raises InvalidArguments, naming the limit."""
    known = {limit.name: getattr(highest_limits, limit.name) for limit in fields(RunLimits)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidArguments(
                f"limits.{name}: unknown limit: use {', '.join(known)}",
                details={"field": f"limits.{name}", "allowed": list(known)},
            )
        highest = known[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= highest or (isinstance(highest, int) and value != int(value)):
            kind = "a whole number" if isinstance(highest, int) else "a number"
            raise InvalidArguments(
                f"limits.{name}: must be {kind} above 0, at most {highest:g}",
                details={"field": f"limits.{name}", "maximum": highest},
            )
        values[name] = type(highest)(value)
    return values


async def _find_problems(sandbox: Sandbox, program: Program, toolset: Toolset) -> list[RunProblem]:
    """What is wrong with a program: unknown tools (they explain the rest), or else its types."""
    try:
        faults = await sandbox.check(program, CHECK_SECONDS)
    except TimeoutError:
        faults = [ProgramProblem(1, 1, f"the check took more than {CHECK_SECONDS:g} seconds: simplify the program")]
    by_line: dict[int, list[str]] = {}
    for problem in faults:
        by_line.setdefault(problem.line, []).append(problem.message)
    if unknown := [RunProblem(line, toolset.problems[line]) for line in by_line if line in toolset.problems]:
        return unknown[:MAX_PROBLEMS]
    problems = []
    for line, messages in list(by_line.items())[:MAX_PROBLEMS]:
        signatures = await asyncio.to_thread(toolset.format_signatures, line)
        problems.append(RunProblem(line, "; ".join(dict.fromkeys(messages)), signatures))
    return problems


def _fail(outcome: ProgramOutcome, problem: str | None) -> ProgramOutcome:
    return replace(outcome, end=RunEnd.FAILED, value=None, message=problem) if problem else outcome


def _check_request(request: RunRequest) -> None:
    if not request.source.strip():
        raise InvalidArguments("code: must not be blank", details={"field": "code"})
    if request.source.lstrip().startswith("```"):
        raise InvalidArguments(
            "code: must be the program alone, without the lines ``` of Markdown", details={"field": "code"}
        )
    if len(request.source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise InvalidArguments(
            f"code: must have at most {MAX_SOURCE_BYTES} bytes", details={"field": "code", "maximum": MAX_SOURCE_BYTES}
        )
    if request.session is not None and not 0 < len(request.session) <= MAX_SESSION_LENGTH:
        raise InvalidArguments(f"session: must have 1 to {MAX_SESSION_LENGTH} characters", details={"field": "session"})


def _ignore(event: Mapping[str, Any]) -> None:
    """The call of a workflow is an event already."""
