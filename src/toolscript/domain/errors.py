"""One hierarchy of errors for every surface. An error says what was wrong, where, and what to do next;
it carries no HTTP status or exit code, because each surface maps the classes in one table of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class ToolscriptError(Exception):
    """The root of every error that Toolscript raises on purpose."""

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})

    def to_envelope(self) -> dict[str, Any]:
        """The error as every surface prints it: `{"error": {"code", "message", "details"}}`."""
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


class Invalid(ToolscriptError):
    """The caller's input or settings cannot be used as they are."""

    code = "VALIDATION_ERROR"


class InvalidArguments(Invalid):
    """What a tool was given does not fit what it takes."""


class NotFound(ToolscriptError):
    """What was asked for by name or id does not exist."""

    code = "NOT_FOUND"


class Conflict(ToolscriptError):
    """What was asked for does not go with how things stand now: it exists already, or someone was faster."""

    code = "CONFLICT"


class Unauthorized(ToolscriptError):
    """Who is asking could not be established."""

    code = "UNAUTHORIZED"


class Forbidden(ToolscriptError):
    """The caller is known and may not do this."""

    code = "FORBIDDEN"


class RateLimited(ToolscriptError):
    """The caller asked too often."""

    code = "RATE_LIMITED"


class Unavailable(ToolscriptError):
    """Something this depends on (a model, a store, an index, a server) cannot be used right now."""

    code = "UNAVAILABLE"


class UpstreamFailed(ToolscriptError):
    """A server behind the gateway answered that something went wrong on its side."""

    code = "UPSTREAM_ERROR"


class TimedOut(ToolscriptError):
    """A server behind the gateway took longer than it may."""

    code = "TIMED_OUT"
