"""Runs Python programs in the worker processes of pydantic-monty, without files and sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from heapq import nsmallest
from math import inf
from typing import Any, TypeVar

from pydantic_monty import (
    AsyncMonty,
    AsyncMontySession,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySyntaxError,
    MontyTypingError,
    OSPolicy,
    ResourceLimits,
)

from toolscript.adapters.monty.hints import NOT_AWAITED, add_hint, is_not_awaited
from toolscript.adapters.monty.values import convert_value
from toolscript.adapters.sandbox.bounded_json import RunValues, TooMuchJson, read_json
from toolscript.domain.errors import InvalidArguments, ToolscriptError, Unavailable
from toolscript.domain.programs import (
    MAX_PROGRAM_PROBLEMS,
    Language,
    Program,
    ProgramOutcome,
    ProgramProblem,
    RunEnd,
    SandboxLimits,
)
from toolscript.ports.sandboxes import ProgramHost

MAX_PROCESSES = 8
CHECKOUT_SECONDS = 10.0
CHECK_MEMORY_BYTES = 2**29
# A check has no mode of its own: the program is fed without a host, and stopped before it gets anywhere. That is
# a limit of a turn, because the time for types counts as well: their worker is killed only when whoever waits gives up.
CHECK_RUN_SECONDS = 1e-6
TURN_GRACE_SECONDS = 600.0
# Otherwise a longer sleep would end after ten seconds, as if it were over. The time of the run limits it.
OS_POLICY = OSPolicy(sleep_system_max=inf, process_time="elapsed")
# Without the time in which the program slept or waited for calls.
READ_CPU_SECONDS = "import time\ntime.process_time()"
# Calls, sleeps and lookups of names that do not exist: each costs the event loop 0.1 ms.
MAX_SUSPENSIONS = 10_000
MAX_MESSAGE_LENGTH = 1000
TOO_BUSY = "the program ran longer than it may, not counting the time that it waited"
# The bindings are fed first, then the program.
PROGRAM_FILE = "<python-input-1>"
# A pool's threads drop Python's objects for a moment after it was closed. A process that ends meanwhile is aborted: 1
# of 4 without a pause, none of 30 with 0.1 s.
CLOSE_PAUSE_SECONDS = 0.2
# Programs may return at the top level, where the type checker does not expect it.
_RETURN = "`return` statement outside of a function"
# Of an argument the checker also says that its type is wrong, where it names the keys that are.
_ANY_ARGUMENT = "Argument to "
_UNSUPPORTED = "The monty syntax parser"

_Result = TypeVar("_Result")


class MontySandbox:
    """Runs programs, each in a worker process for itself. The first use starts the pool."""

    language = Language.PYTHON

    def __init__(self, max_processes: int = MAX_PROCESSES) -> None:
        self._pool = AsyncMonty(
            min_processes=1,
            max_processes=max_processes,
            checkout_timeout=CHECKOUT_SECONDS,
            request_timeout=None,
            turn_duration_limit_grace=TURN_GRACE_SECONDS,
        )
        self._lock = asyncio.Lock()
        self._is_open = False

    async def prepare(self) -> None:
        """Starts the pool. Raises Unavailable."""
        async with self._lock:
            if self._is_open:
                return
            try:
                await self._pool.__aenter__()
            except (OSError, RuntimeError) as error:
                raise Unavailable(f"the sandbox for Python cannot be started: {error}") from error
            except asyncio.CancelledError:  # the processes start nevertheless
                await self._end_pool()
                raise
            self._is_open = True

    async def check(self, program: Program, seconds: float) -> list[ProgramProblem]:
        """What is wrong with the syntax and the types of a program, by line. Raises TimeoutError and Unavailable."""
        limits = ResourceLimits(max_memory=CHECK_MEMORY_BYTES, max_turn_duration_secs=CHECK_RUN_SECONDS)
        stubs = {"type_check": True, "type_check_stubs": program.types, "type_check_format": "json"}
        try:
            async with self._check_out(limits=limits, **stubs) as session:
                async with asyncio.timeout(seconds):
                    await session.feed_run(program.source, print_callback=_ignore_output)
        except MontyTypingError as error:
            return _list_problems(await read_json(str(error)), program.types)
        except (MontySyntaxError, MontyRuntimeError) as error:
            if isinstance(error, MontySyntaxError) or _UNSUPPORTED in str(error):
                return [_describe_syntax(error)]
        except MontyCrashedError:
            return [ProgramProblem(1, 1, "the program is too complex to be checked")]
        return []

    async def run(self, program: Program, host: ProgramHost, limits: SandboxLimits) -> ProgramOutcome:
        """Runs a program, and ends it when the host says so. Raises Unavailable."""
        calls = _HostCalls(host, limits)
        own = ResourceLimits(
            max_memory=limits.memory_bytes,
            max_feed_duration_secs=limits.cpu_seconds,
            max_suspensions=MAX_SUSPENSIONS,
        )
        try:
            async with self._check_out(limits=own, os_policy=OS_POLICY) as session:
                host.begin()
                return await calls.run(self._feed(session, program, calls, limits))
        except MontyError as error:
            return _describe_failure(error)
        finally:
            await calls.cancel()

    async def close(self) -> None:
        """Ends the worker processes."""
        if self._is_open:
            self._is_open = False
            await self._end_pool()

    async def _end_pool(self) -> None:
        await self._pool.__aexit__(None, None, None)
        await asyncio.sleep(CLOSE_PAUSE_SECONDS)

    @asynccontextmanager
    async def _check_out(self, **options: Any) -> AsyncIterator[AsyncMontySession]:
        await self.prepare()
        session = self._pool.checkout(**options)
        try:
            await session.__aenter__()
        except TimeoutError:
            raise Unavailable("too many programs are running: try again when one has ended") from None
        try:
            yield session
        finally:
            await session.__aexit__(None, None, None)

    async def _feed(
        self, session: AsyncMontySession, program: Program, calls: _HostCalls, limits: SandboxLimits
    ) -> ProgramOutcome:
        try:
            outcome = await self._feed_program(session, program, calls, limits)
        except (MontyRuntimeError, MontySyntaxError) as error:
            outcome = _describe_failure(error)
        try:
            return replace(outcome, cpu_seconds=await session.feed_run(READ_CPU_SECONDS))
        except (MontyError, RuntimeError):  # of a program that has used its memory, or ended its process with that
            return outcome

    @staticmethod
    async def _feed_program(
        session: AsyncMontySession, program: Program, calls: _HostCalls, limits: SandboxLimits
    ) -> ProgramOutcome:
        async def call_host(function: object, arguments: object) -> Any:
            return await calls.call(function, arguments)

        call_host.__qualname__ = "call_host"  # errors of wrong calls name it
        lookup: dict[str, Any] = {"call_host": call_host}
        bindings = f"{program.bindings}\nNone"  # feeds without a statement are not counted
        await session.feed_run(bindings, inputs=dict(program.inputs), external_lookup=lookup)
        output = await session.feed_run(program.source, external_lookup=lookup, print_callback=calls.print)
        try:
            value = await calls.values.copy(output, limits.output_bytes, convert_value)
            return (
                ProgramOutcome(RunEnd.FAILED, message=NOT_AWAITED)
                if is_not_awaited(value)
                else ProgramOutcome(RunEnd.DONE, value)
            )
        except TooMuchJson:
            message = f"the program's value is larger than {limits.output_bytes} bytes of JSON: return less of it"
            return ProgramOutcome(RunEnd.OUTPUT, message=message)
        except ValueError as error:
            return ProgramOutcome(RunEnd.FAILED, message=f"the program's value cannot be returned: {error}")


class _HostCalls:
    """What one run asks of its host."""

    def __init__(self, host: ProgramHost, limits: SandboxLimits) -> None:
        self.values = RunValues(limits.output_bytes)
        self._host = host
        self._max_bytes = limits.output_bytes
        self._loop = asyncio.get_running_loop()
        self._stop: asyncio.Future[None] = self._loop.create_future()
        self._running: set[asyncio.Task[Any]] = set()
        self._printed = 0

    async def run(self, feeding: Coroutine[Any, Any, _Result]) -> _Result:
        """The result of the run. Raises what the host raised to end it."""
        task = asyncio.create_task(feeding)
        waiting: list[asyncio.Future[Any]] = [task, self._stop]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.done():
                self._stop.result()
            return await task
        finally:
            await _cancel([task])

    async def cancel(self) -> None:
        """Ends the calls that still run."""
        await _cancel(self._running)
        if not self._stop.cancel() and not self._stop.cancelled():
            self._stop.exception()  # it may have come too late to be raised

    async def call(self, function: object, arguments: object) -> Any:
        """Runs one call. Monty does not cancel it with the program, so it is a task of its own."""
        task = asyncio.create_task(self._call(function, arguments))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await task

    async def _call(self, function: object, arguments: object) -> Any:
        try:
            self._host.count_call()
            # Calls that share a value have a copy each, which together can be far more than the program's memory.
            with self.values.hold_arguments(await self._read(self.values.measure, arguments)):
                return await self._host.call(str(function), await self._read(self.values.copy, arguments))
        except ToolscriptError as error:
            raise RuntimeError(f"{error.code}: {error.message}") from None
        except Exception as error:
            self._end(error)
            raise

    async def _read(self, read: Callable[..., Awaitable[_Result]], arguments: object) -> _Result:
        """Raises InvalidArguments."""
        if not isinstance(arguments, dict):
            raise InvalidArguments("the arguments must be a dictionary")
        try:
            return await read(arguments, self._max_bytes, convert_value)
        except TooMuchJson:
            raise InvalidArguments(f"more than {self._max_bytes} bytes of arguments") from None
        except ValueError as error:
            raise InvalidArguments(f"the arguments cannot be used: {error}") from None

    def print(self, _: str, text: str) -> None:
        """Hands on what is printed, from a thread of Monty's. More than enough to reach any limit is dropped."""
        if self._printed <= self._max_bytes:
            self._printed += len(text)
            self._loop.call_soon_threadsafe(self._take_output, text)

    def _take_output(self, text: str) -> None:
        if self._stop.done():
            return
        try:
            self._host.take_output(text)
        except Exception as error:  # noqa: BLE001  (whatever it is, it ends the run)
            self._end(error)

    def _end(self, error: Exception) -> None:
        if not self._stop.done():
            self._stop.set_exception(error)


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    running = list(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def _ignore_output(_: str, __: str) -> None:
    return None


def _list_problems(diagnostics: list[dict[str, Any]], types: str) -> list[ProgramProblem]:
    found = [each for each in diagnostics if each["severity"] == "error" and each["message"] != _RETURN]
    exact = {each["location"]["row"] for each in found if not each["message"].startswith(_ANY_ARGUMENT)}
    problems = [
        (each["location"]["row"], each["location"]["column"], each["message"])
        for each in found
        if each["location"]["row"] not in exact or not each["message"].startswith(_ANY_ARGUMENT)
    ]
    return [
        ProgramProblem(row, column, add_hint(message, types))
        for row, column, message in nsmallest(MAX_PROGRAM_PROBLEMS, problems)
    ]


def _describe_syntax(error: MontySyntaxError | MontyRuntimeError) -> ProgramProblem:
    frames = error.traceback()
    line, column = (frames[-1].line, frames[-1].column) if frames else (1, 1)
    return ProgramProblem(line, column, error.display("msg").replace(_UNSUPPORTED, "this sandbox's Python"))


def _describe_failure(error: MontyError) -> ProgramOutcome:
    if isinstance(error, MontyCrashedError) and error.timed_out:  # it was busy with one long operation
        return ProgramOutcome(RunEnd.CPU, message=TOO_BUSY)
    if isinstance(error, MontyCrashedError):
        return ProgramOutcome(RunEnd.FAILED, message="the program crashed its sandbox")
    reason = error.exception()
    message = str(error).replace(_UNSUPPORTED, "this sandbox's Python")[:MAX_MESSAGE_LENGTH]
    end = RunEnd.FAILED
    if isinstance(reason, MemoryError):
        end, message = RunEnd.MEMORY, "the program used more memory than it may"
    elif isinstance(reason, TimeoutError) and "time limit exceeded" in message:
        end, message = RunEnd.CPU, TOO_BUSY
    frames = error.traceback() if isinstance(error, MontyRuntimeError | MontySyntaxError) else []
    lines = [frame.line for frame in frames if frame.filename == PROGRAM_FILE]
    return ProgramOutcome(end, message=message, line=lines[-1] if lines else None)
