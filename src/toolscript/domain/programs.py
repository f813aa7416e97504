"""Programs that agents send to be run in a sandbox: what they are made of, their limits, and how a run ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Language(StrEnum):
    """The languages of programs."""

    PYTHON = "python"
    TYPESCRIPT = "typescript"


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and what it finds around it."""

    source: str
    bindings: str = ""
    """Source in the same language that runs first. It defines the functions that the program calls, by means of
    `await call_host(function, arguments)`, the only way out of a sandbox."""
    types: str = ""
    """Declarations of what `bindings` and `inputs` define; the program is checked against them."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """JSON values, by the names of the global variables that hold them."""


@dataclass(frozen=True, slots=True)
class ProgramProblem:
    """What a check found: where in the program (lines and columns count from 1), and what is wrong."""

    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one run may use inside of its sandbox."""

    cpu_seconds: float
    """Time that the program itself runs; waiting for the host does not count."""
    memory_bytes: int
    output_bytes: int
    """The size of the program's value as JSON, and of each call's arguments."""


class RunEnd(StrEnum):
    """Why a run ended. All but the first two are limits."""

    DONE = "done"
    FAILED = "failed"
    """The program raised an error, or cannot be run at all."""
    TIME = "time"
    CPU = "cpu"
    MEMORY = "memory"
    CALLS = "calls"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """How a run ended."""

    end: RunEnd
    value: Any = None
    """What the program returned, as JSON allows; None unless it is done."""
    message: str = ""
    """Why it is not done, in one sentence."""
    line: int | None = None
    """Where in the program it failed, if that is known."""


class LimitReached(Exception):
    """Ends a run from the host's side, and tells why."""

    def __init__(self, end: RunEnd, message: str) -> None:
        super().__init__(message)
        self.end = end
        self.message = message
