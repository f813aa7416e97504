"""Requests about feedback."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StringConstraints

from toolscript.domain.feedback import MAX_REQUEST_CHARACTERS
from toolscript.surfaces.http.schemas.models import ONE_LINE, RequestModel
from toolscript.surfaces.json.definitions import TOOL_ID


class MarkRequest(RequestModel):
    """A tool, and a request that it serves or is wrong for."""

    tool_id: Annotated[str, StringConstraints(pattern=ONE_LINE)] = Field(
        min_length=1, description=TOOL_ID, examples=["filesystem__read_file"]
    )
    query: str = Field(
        min_length=1,
        max_length=MAX_REQUEST_CHARACTERS,
        description="The request, in the words of the search.",
        examples=["show me what is in notes.txt"],
    )
    useful: StrictBool | None = Field(
        default=True,
        description="False: the tool is wrong for the request. Null takes back what the same caller has recorded for "
        "this tool and request.",
    )
