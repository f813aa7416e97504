"""Runs TypeScript programs, each in a Deno process of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from toolscript.adapters.deno.checker import OPENING, TypeScriptChecker
from toolscript.adapters.deno.process import OUT_OF_MEMORY, ProgramProcess
from toolscript.adapters.sandbox.bounded_json import RunValues
from toolscript.adapters.workers.process import describe_exit
from toolscript.domain.errors import Invalid, InvalidArguments, ToolscriptError, Unavailable
from toolscript.domain.programs import (
    DEFAULT_LIMITS,
    Language,
    Program,
    ProgramOutcome,
    ProgramProblem,
    RunEnd,
    SandboxLimits,
)
from toolscript.ports.sandboxes import ProgramHost

MAX_PROCESSES = 8
# A process needs 0.2 s until it is ready, most of which it sleeps.
SPARE_PROCESSES = 2
# A process that waits for a program holds 45 MB, and the checker 160.
IDLE_SECONDS = 600.0
MAX_MESSAGE_LENGTH = 1000
_LIMITS = {
    "cpu": (RunEnd.CPU, "the program ran longer than it may, not counting the time that it waited"),
    "memory": (RunEnd.MEMORY, "the program used more memory than it may"),
}


class DenoSandbox:
    """Runs programs, each in a process for itself. After a run, processes for the next programs are started."""

    language = Language.TYPESCRIPT

    def __init__(self, max_processes: int = MAX_PROCESSES, spare_processes: int = SPARE_PROCESSES) -> None:
        self._slots = asyncio.Semaphore(max_processes)
        self._spare_processes = spare_processes
        self._checker = TypeScriptChecker()
        self._spares: list[ProgramProcess] = []
        self._memory_bytes = DEFAULT_LIMITS.memory_mb * 2**20
        """What the last program might use: spare processes are started for that."""
        self._upkeep: asyncio.Task[None] | None = None
        """Starts spare processes, or ends them."""
        self._stopping: set[asyncio.Task[None]] = set()
        self._idle: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def prepare(self) -> None:
        """Starts the checker and the first processes. Raises Unavailable."""
        self._postpone_idle_end()
        self._start_upkeep(self._start_spares())
        await self._checker.prepare()

    async def check(self, program: Program, seconds: float) -> list[ProgramProblem]:
        """What is wrong with the syntax and the types of a program, by line. Raises TimeoutError and Unavailable."""
        self._postpone_idle_end()
        if not self._spares:  # the first program needs both, one after the other
            self._start_upkeep(self._start_spares())
        return await self._checker.check(program, seconds)

    async def run(self, program: Program, host: ProgramHost, limits: SandboxLimits) -> ProgramOutcome:
        """Runs a program, and ends it when the host says so. Raises Unavailable."""
        self._memory_bytes = limits.memory_bytes
        async with self._check_out(limits.memory_bytes) as process:
            return await _ProgramRun(process, host, limits).complete(program)

    async def close(self) -> None:
        """Ends all processes."""
        self._is_closed = True
        if self._idle:
            self._idle.cancel()
        if self._upkeep:
            await self._upkeep
        await self._stop_waiting_processes()
        await asyncio.gather(*self._stopping)

    @asynccontextmanager
    async def _check_out(self, memory_bytes: int) -> AsyncIterator[ProgramProcess]:
        async with self._slots:
            process = await self._take(memory_bytes)
            try:
                yield process
            finally:
                task = asyncio.create_task(process.stop())  # its end takes 10 ms
                self._stopping.add(task)
                task.add_done_callback(self._stopping.discard)
                self._postpone_idle_end()
                # Not before: the start of a process takes time from the program.
                self._start_upkeep(self._start_spares())

    async def _take(self, memory_bytes: int) -> ProgramProcess:
        """A spare process with that much memory, or a new one."""
        if not self._spares and self._upkeep:
            await asyncio.wait([self._upkeep])
        for spare in self._spares:
            if spare.is_running and spare.memory_bytes == memory_bytes:
                self._spares.remove(spare)
                return spare
        return await ProgramProcess.start(memory_bytes)

    def _start_upkeep(self, work: Coroutine[Any, Any, None]) -> None:
        """Does that in the background, unless something of the kind goes on."""
        if self._is_closed or (self._upkeep and not self._upkeep.done()):
            work.close()
        else:
            self._upkeep = asyncio.create_task(work)

    async def _start_spares(self) -> None:
        memory_bytes = self._memory_bytes
        useless = [each for each in self._spares if not each.is_running or each.memory_bytes != memory_bytes]
        for spare in useless:
            self._spares.remove(spare)
            await spare.stop()
        try:
            while len(self._spares) < self._spare_processes and not self._is_closed:
                self._spares.append(await ProgramProcess.start(memory_bytes))
        except Unavailable:
            return  # the next run tries again, and says why it cannot

    def _postpone_idle_end(self) -> None:
        if self._idle:
            self._idle.cancel()
        if not self._is_closed:
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_idle_processes)

    def _end_idle_processes(self) -> None:
        self._start_upkeep(self._stop_waiting_processes())

    async def _stop_waiting_processes(self) -> None:
        """Ends what waits for programs."""
        while self._spares:
            await self._spares.pop().stop()
        await self._checker.close()


class _ProgramRun:
    """One program in its process, and what it asks of its host."""

    def __init__(self, process: ProgramProcess, host: ProgramHost, limits: SandboxLimits) -> None:
        self._process = process
        self._host = host
        self._limits = limits
        self._values = RunValues(limits.output_bytes)
        self._calls: set[asyncio.Task[None]] = set()
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first_line = 0
        self._last_line = 0
        self._cpu_seconds = 0.0

    async def complete(self, program: Program) -> ProgramOutcome:
        """How the program ended. Raises what the host raised to end it."""
        opening = program.bindings + OPENING
        self._first_line = opening.count("\n") + 1
        self._last_line = self._first_line + program.source.count("\n")
        limits = self._limits
        request = {
            "program": f"{opening}{program.source}\n}}",
            "limits": {
                "cpu_seconds": limits.cpu_seconds,
                "memory_bytes": limits.memory_bytes,
                "output_bytes": limits.output_bytes,
            },
        }
        task = asyncio.create_task(self._exchange(request, program.inputs))
        try:
            either: list[asyncio.Future[Any]] = [task, self._stop]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.done():
                self._stop.result()
            return replace(await task, cpu_seconds=self._cpu_seconds)
        finally:
            await self._cancel(task, *self._calls)

    async def _cancel(self, *tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self._stop.cancel() and not self._stop.cancelled():
            self._stop.exception()  # it may have come too late to be raised

    async def _exchange(self, request: dict[str, Any], inputs: Mapping[str, Any]) -> ProgramOutcome:
        await self._process.send(request, await self._values.write(dict(inputs)))
        while True:
            try:
                message = await self._process.receive()
            except ValueError as error:
                return ProgramOutcome(RunEnd.FAILED, message=str(error))
            self._cpu_seconds = float(message.get("seconds", 0.0)) if message else 0.0
            match message:
                case None:
                    return await self._explain_end()
                case {"kind": "begin"}:
                    self._host.begin()
                case {"kind": "print", "text": text}:
                    self._host.take_output(text)
                case {"kind": "call"}:
                    task = asyncio.create_task(self._call(message["id"], message["name"], message["text"]))
                    self._calls.add(task)
                    task.add_done_callback(self._calls.discard)
                case {"kind": "result", "text": text}:
                    return await self._read_value(text)
                case {"kind": "limit", "limit": "output"}:
                    return ProgramOutcome(RunEnd.OUTPUT, message=self._describe_size())
                case {"kind": "limit", "limit": limit}:
                    end, sentence = _LIMITS[limit]
                    return ProgramOutcome(end, message=sentence)
                case _:
                    return self._explain_error(message)

    async def _call(self, number: int, function: str, text: str) -> None:
        try:
            self._host.count_call()
            with self._values.hold_arguments(len(text)):
                result = await self._host.call(function, await self._read_arguments(text))
            await self._process.send({"id": number}, await self._write_result(result))
        except ToolscriptError as error:
            await self._process.send({"id": number, "error": f"{error.code}: {error.message}"})
        except Exception as error:  # noqa: BLE001  (whatever it is, it ends the run)
            if not self._stop.done():
                self._stop.set_exception(error)

    async def _write_result(self, result: Any) -> str:
        """Raises Invalid."""
        try:
            return await self._values.write(result)
        except ValueError as error:
            raise Invalid(f"the result of the call cannot be written as JSON: {error}") from None

    async def _read_arguments(self, text: str) -> dict[str, Any]:
        """Raises InvalidArguments."""
        try:
            arguments = await self._values.read(text)
        except ValueError as error:
            raise InvalidArguments(f"the arguments cannot be used: {error}") from None
        if not isinstance(arguments, dict):
            raise InvalidArguments("the arguments cannot be used: they must be an object")
        return arguments

    async def _read_value(self, text: str) -> ProgramOutcome:
        try:
            return ProgramOutcome(RunEnd.DONE, await self._values.read(text))
        except ValueError as error:
            return ProgramOutcome(RunEnd.FAILED, message=f"the program's value cannot be returned: {error}")

    def _describe_size(self) -> str:
        return f"the program's value is larger than {self._limits.output_bytes} bytes of JSON: return less of it"

    async def _explain_end(self) -> ProgramOutcome:
        code = await self._process.wait_for_exit()
        if -code in OUT_OF_MEMORY:
            end, sentence = _LIMITS["memory"]
            return ProgramOutcome(end, message=sentence)
        return ProgramOutcome(RunEnd.FAILED, message=f"the program crashed its sandbox: {describe_exit(code)}")

    def _explain_error(self, message: dict[str, Any]) -> ProgramOutcome:
        """The message without the places in it, and the first line of the program in the stack."""
        place = re.compile(re.escape(message["url"]) + r":(\d{1,7}):\d+")
        text = f"{message['message']}\n{message['stack']}"
        lines = [int(found[1]) for found in place.finditer(text)] if message["url"] else []
        own = [line - self._first_line + 1 for line in lines if self._first_line <= line <= self._last_line]
        summary = place.sub("", message["message"]).strip()[:MAX_MESSAGE_LENGTH]
        return ProgramOutcome(RunEnd.FAILED, message=summary, line=own[0] if own else None)
