"""Programs that agents send to be run in a sandbox: what they are made of, their limits, how a run ends, and workflows:
programs that are saved under a name, with parameters, and are tools themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from toolscript.domain.catalog import Item, Schema
from toolscript.domain.servers import ServerSpec, Transport


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


MAX_PROGRAM_PROBLEMS = 200


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
    """Why a run ended. All but the first three are limits."""

    DONE = "done"
    REJECTED = "rejected"
    """The check found problems, so nothing was run."""
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
    cpu_seconds: float = 0.0
    """How long the program itself ran."""

    @property
    def sentence(self) -> str:
        """Why it is not done, after the line."""
        is_named = not self.line or self.message.startswith("line ")
        return self.message if is_named else f"line {self.line}: {self.message}"


class LimitReached(Exception):
    """Ends a run from the host's side, and tells why."""

    def __init__(self, end: RunEnd, message: str) -> None:
        super().__init__(message)
        self.end = end
        self.message = message


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What one run may use. Each limit has a maximum: its value in MAX_LIMITS, or a smaller value of the operator's."""

    seconds: float = 60.0
    """Time from the start to the end, without the time in which a person is asked for an approval."""
    cpu_seconds: float = 5.0
    memory_mb: int = 64
    calls: int = 100
    """Calls of tools, searches and descriptions."""
    output_bytes: int = 1_000_000
    """The value, and apart from it what is printed."""

    def cap(self, highest: RunLimits) -> RunLimits:
        """The limits, each at most its value in `highest`."""
        return RunLimits(
            **{each.name: min(getattr(self, each.name), getattr(highest, each.name)) for each in fields(self)}
        )


DEFAULT_LIMITS = RunLimits()
MAX_LIMITS = RunLimits(seconds=600.0, cpu_seconds=60.0, memory_mb=256, calls=1000, output_bytes=10_000_000)


@dataclass(frozen=True, slots=True)
class RunProblem:
    """What is wrong with a program that was not run: the line, and the signatures of the tools that it calls there."""

    line: int
    message: str
    signatures: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that a program has made. `outcome` is `ok`, or an error code."""

    function: str
    """The tool's id, or the name of the host's function."""
    outcome: str
    ms: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run: how it ended, what it printed, and the calls that it made, as far as they ended."""

    run_id: str
    """In the audit, the calls of the run have it as their request id."""
    language: Language
    outcome: ProgramOutcome
    printed: str
    calls: Sequence[CallRecord]
    took_ms: float
    problems: Sequence[RunProblem] = ()


SERVER_NAME = "workflows"
"""The server that workflows are tools of."""
WORKFLOW_SERVER = ServerSpec(SERVER_NAME, Transport.INTERNAL)
RESULT = "result"
"""The field of a tool's structured result that has what a program returns, unless that is an object."""
NO_PARAMETERS: Schema = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Workflow:
    """A program that is saved under a name, and is a tool."""

    name: str
    description: str
    language: Language
    source: str
    """The program. It finds its arguments in the variable `params`."""
    parameters: Schema = field(default_factory=lambda: NO_PARAMETERS)
    """The JSON Schema of the arguments."""
    result: Schema | None = None
    """The JSON Schema of what the program returns; None if nothing is known of it."""
    is_read_only: bool = False
    """Whether all tools that the program names were read-only when it was saved. Then it can call no others."""
    saved_at: float = 0.0
    """In seconds since 1970."""
    saved_by: str = ""
    """The name of the key that it was saved with, or `owner`."""

    @property
    def item(self) -> Item:
        """The workflow as a tool."""
        return Item(
            SERVER_NAME,
            self.name,
            self.description,
            input_schema=self.parameters,
            output_schema=self.output_schema,
            annotations={"readOnlyHint": True} if self.is_read_only else None,
        )

    @property
    def output_schema(self) -> Schema | None:
        """The schema of the tool's structured result. The result is always an object."""
        if self.result is None or self.returns_object:
            return self.result
        # References are to the root of a schema, or to the part with an `$id` around them.
        shared = {name: self.result[name] for name in ("$schema", "$defs", "definitions") if name in self.result}
        wrapped = {name: part for name, part in self.result.items() if name not in {*shared, "$id"}}
        return {**shared, "type": "object", "properties": {RESULT: wrapped}, "required": [RESULT]}

    @property
    def returns_object(self) -> bool:
        """Whether the schema of the result allows objects only."""
        return self.result is not None and self.result.get("type") == "object"

    def build_structured(self, value: Any) -> dict[str, Any]:
        """The structured result of the tool: the value, if it is an object and must or may be one, else an object that
        has it as `result`."""
        is_whole = isinstance(value, dict) and (self.result is None or self.returns_object)
        return value if is_whole else {RESULT: value}
