"""Requests of code mode."""

from __future__ import annotations

from pydantic import Field

from toolscript.domain.programs import DEFAULT_LIMITS, MAX_LIMITS, Language, RunLimits
from toolscript.services.code.run import MAX_SESSION_LENGTH, MAX_SOURCE_BYTES, RunRequest, parse_limits
from toolscript.surfaces.http.schemas.models import RequestModel


class LimitsRequest(RequestModel):
    """What the run may use."""

    seconds: float = Field(
        DEFAULT_LIMITS.seconds, gt=0, le=MAX_LIMITS.seconds, description="Time from the start to the end."
    )
    cpu_seconds: float = Field(
        DEFAULT_LIMITS.cpu_seconds,
        gt=0,
        le=MAX_LIMITS.cpu_seconds,
        description="Time in which the program itself runs; waiting for tools does not count.",
    )
    memory_mb: int = Field(
        DEFAULT_LIMITS.memory_mb, gt=0, le=MAX_LIMITS.memory_mb, description="Memory of the program in MiB."
    )
    calls: int = Field(
        DEFAULT_LIMITS.calls, gt=0, le=MAX_LIMITS.calls, description="Calls of tools, searches and descriptions."
    )
    output_bytes: int = Field(
        DEFAULT_LIMITS.output_bytes,
        gt=0,
        le=MAX_LIMITS.output_bytes,
        description="Size of the value as JSON, and apart from it of what is printed.",
    )


class RunBody(RequestModel):
    """A program to run."""

    code: str = Field(
        description="The program. `await tools.SERVER.NAME({…})` calls a tool; its value is that of `return`, or in "
        f"Python of a last line that is an expression. At most {MAX_SOURCE_BYTES} bytes.",
        examples=['found = await tools.filesystem.list_directory({"path": "."})\nlen(found["content"])'],
    )
    language: Language | None = Field(
        None, description="Its language. Default: the first of TOOLSCRIPT_CODE, where the gateway runs."
    )
    limits: LimitsRequest | None = Field(None, description="What the run may use.")
    session: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_SESSION_LENGTH,
        description="Names the results that runs keep for each other, for an hour, with `save_result` and "
        "`load_result`. Without it nothing is kept.",
    )
    check_only: bool = Field(False, description="Only check the program, and do not run it.")

    def to_request(self, default_language: Language, max_limits: RunLimits) -> RunRequest:
        """The request of the service. Raises InvalidArguments for limits above the operator's."""
        limits = parse_limits(self.limits.model_dump(exclude_unset=True) if self.limits else {}, max_limits)
        return RunRequest(
            self.code, self.language or default_language, limits, self.session, checks_only=self.check_only
        )
