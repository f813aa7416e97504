"""The errors of every surface. A message says what is wrong, where, and what to do next. Errors have no HTTP status or
exit code: each surface maps the classes in one table."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolscript.domain.servers import CallResult


class ToolscriptError(Exception):
    """The base class of all errors that Toolscript raises on purpose."""

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})

    def to_envelope(self) -> dict[str, Any]:
        """Returns the error as all surfaces print it: `{"error": {"code", "message", "details"}}`."""
        return {"error": {"code": self.code, "message": self.message, "details": self.details}}


class Invalid(ToolscriptError):
    """The caller's input or settings are invalid."""

    code = "VALIDATION_ERROR"


class InvalidArguments(Invalid):
    """The arguments of a call are invalid."""


class TooLarge(InvalidArguments):
    """The input is larger than the limit."""


class MethodNotAllowed(ToolscriptError):
    """The route exists, and has no such method."""

    code = "METHOD_NOT_ALLOWED"


class NotFound(ToolscriptError):
    """Nothing with this name or id exists."""

    code = "NOT_FOUND"


class Conflict(ToolscriptError):
    """The request conflicts with the current state: it already exists, or another request came first."""

    code = "CONFLICT"


class Unauthorized(ToolscriptError):
    """The caller could not be identified."""

    code = "UNAUTHORIZED"


class LoginDeclined(Unauthorized):
    """A person cancelled a login at the authorization server, or it refused that person."""


class Forbidden(ToolscriptError):
    """The caller is identified and may not do this."""

    code = "FORBIDDEN"


class Quarantined(ToolscriptError):
    """The definition of a tool is in quarantine: it can be found, and not used until a person approves it."""

    code = "QUARANTINED"


class ApprovalRequired(ToolscriptError):
    """A person has to approve a call first. `question` asks for that; without one the call waits for a decision
    elsewhere, or its approval was not valid."""

    code = "APPROVAL_REQUIRED"

    def __init__(
        self, message: str, *, question: CallResult | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, details=details)
        self.question = question


class ApprovalDeclined(ToolscriptError):
    """A person was asked to approve a call, and did not."""

    code = "APPROVAL_DECLINED"


class RateLimited(ToolscriptError):
    """The caller sent too many requests."""

    code = "RATE_LIMITED"


class Unavailable(ToolscriptError):
    """A dependency (a model, a store, an index, a server) is not available right now."""

    code = "UNAVAILABLE"


class FolderInUse(Unavailable):
    """Another process has opened the folder, which one process at a time can use."""


class IndexDamaged(Unavailable):
    """A collection of the index cannot be read. The store has everything that is in it, and the others can be used."""


class LoginRequired(Unavailable):
    """A server is not available until a user logs in."""


class DiskFull(Unavailable):
    """The disk has no room for what would be written. Reading goes on."""

    RETRY_SECONDS: ClassVar[int] = 60
    """Somebody has to free space: there is no point in trying more often."""

    def __init__(self, free_bytes: int, needed_bytes: int) -> None:
        super().__init__(
            f"disk full: {free_bytes // 2**20} MB free, {-(-needed_bytes // 2**20)} MB needed",
            details={
                "free_bytes": free_bytes,
                "needed_bytes": needed_bytes,
                "retry_after_seconds": self.RETRY_SECONDS,
            },
        )


class UpstreamFailed(ToolscriptError):
    """A server behind the gateway responded with an error."""

    code = "UPSTREAM_ERROR"


class ToolFailed(UpstreamFailed):
    """A tool answered that it failed; `result` is its whole answer."""

    def __init__(self, message: str, *, result: CallResult, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, details=details)
        self.result = result


class TimedOut(ToolscriptError):
    """A server behind the gateway did not respond in time."""

    code = "TIMED_OUT"


def is_disk_full(error: BaseException) -> bool:
    """Whether the operating system refused to write because a disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
