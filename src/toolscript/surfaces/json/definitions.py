"""What several definitions of responses share.

A response is defined once, as a TypedDict beside the function that builds it: mypy checks the function by it, and
`surfaces/http/responses.py` describes it in the OpenAPI document. In `Annotated`, a text is the description of the
field. A field that is `NotRequired` is left out where it says nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

Definition = TypeVar("Definition")

TOOL_ID = "`server__tool`, as searches return it."


class More:
    """What the JSON Schema of a field says beside its type and description."""

    def __init__(self, **schema: Any) -> None:
        self.schema = schema


Share = Annotated[float, More(minimum=0, maximum=1)]


def omit_empty(response: Definition, *names: str) -> Definition:
    """Removes those of the fields that are empty."""
    fields: Any = response
    for name in names:
        if not fields[name]:
            del fields[name]
    return response


def format_time(seconds: float, precision: str = "seconds") -> str:
    """Formats seconds since 1970 as a date and time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision)
