"""Sandboxes: where programs of agents run, with no way out but their host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from toolscript.domain.programs import Language, Program, ProgramOutcome, ProgramProblem, SandboxLimits


class ProgramHost(Protocol):
    """Answers one running program. All methods are called on the event loop."""

    def begin(self) -> None:
        """Called when the program begins: its process is ready."""

    def count_call(self) -> None:
        """Counts a call before its arguments are read: unusable arguments cost time as well. An exception ends the
        run."""

    async def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """The JSON value that `await call_host(function, arguments)` gives inside. A ToolscriptError is raised inside
        as an exception with the text `CODE: message` that the program may catch; any other exception ends the run."""

    def take_output(self, text: str) -> None:
        """Takes what the program prints, in order; not necessarily line by line. An exception ends the run."""


class Sandbox(Protocol):
    """Checks and runs programs in one language. A program reaches nothing but its host: no files, no network, no
    environment, no other processes, no other runs.

    The program's value is the value of a `return` at its top level; in Python, also the value of a last line that is an
    expression. `await` is allowed at the top level. Calls that the program starts together run together.

    >>> import asyncio
    >>> from toolscript.adapters.monty.sandbox import MontySandbox
    >>> class Host:
    ...     def begin(self):
    ...         pass
    ...     def count_call(self):
    ...         pass
    ...     async def call(self, function, arguments):
    ...         return arguments["number"] * 2
    ...     def take_output(self, text):
    ...         pass
    >>> program = Program('await call_host("double", {"number": 21})')
    >>> async def run():
    ...     sandbox = MontySandbox()
    ...     try:
    ...         return await sandbox.run(program, Host(), SandboxLimits(1.0, 2**26, 2**20))
    ...     finally:
    ...         await sandbox.close()
    >>> asyncio.run(run()).value
    42
    """

    @property
    def language(self) -> Language:
        """The language of the programs."""

    async def prepare(self) -> None:
        """Starts what the first program needs, so that it does not wait for that; it would be started then otherwise.
        Raises Unavailable when it cannot be started."""

    async def check(self, program: Program, seconds: float) -> list[ProgramProblem]:
        """What is wrong with the syntax and the types of a program: the first MAX_PROGRAM_PROBLEMS by line. Nothing of
        it has an effect. Cancelling ends the check. Raises TimeoutError when the check itself takes more than these
        seconds, not counting the wait for its turn; Unavailable when nothing can be checked, or that time is too
        long."""

    async def run(self, program: Program, host: ProgramHost, limits: SandboxLimits) -> ProgramOutcome:
        """Runs a program, without a check. It ends with DONE, FAILED, CPU, MEMORY or OUTPUT.

        Cancelling ends the program, its process and its calls within a second: that is how time is limited. Raises
        what the host raises to end the run, and Unavailable when the sandbox cannot be started."""

    async def close(self) -> None:
        """Ends what it has started."""
