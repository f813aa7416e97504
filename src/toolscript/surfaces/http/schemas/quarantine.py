"""Requests about the quarantine."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from toolscript.surfaces.http.schemas.models import RequestModel
from toolscript.surfaces.json.definitions import TOOL_ID


class DecisionRequest(RequestModel):
    """The definitions that a person has decided about."""

    tool_ids: list[Annotated[str, StringConstraints(min_length=1, max_length=2000)]] = Field(
        min_length=1, max_length=10_000, description=TOOL_ID, examples=[["filesystem__read_file"]]
    )
    digest: str | None = Field(
        default=None, description="The digest of the definition that was looked at: refused if there is another by now."
    )
