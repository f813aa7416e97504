"""Requests and responses about the quarantine."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from toolscript.domain.catalog import ItemType
from toolscript.domain.quarantine import QuarantineCause, QuarantineState
from toolscript.surfaces.http.schemas.models import RequestModel, ResponseModel

TOOL_ID = "`server__tool`, as searches return it."


class DecisionRequest(RequestModel):
    """The definitions that a person has decided about."""

    tool_ids: list[Annotated[str, StringConstraints(min_length=1, max_length=2000)]] = Field(
        min_length=1, max_length=10_000, description=TOOL_ID, examples=[["filesystem__read_file"]]
    )
    digest: str | None = Field(
        default=None, description="The digest of the definition that was looked at: refused if there is another by now."
    )


class QuarantinedResponse(ResponseModel):
    """A definition in quarantine."""

    tool_id: str = Field(description=TOOL_ID)
    server: str
    type: ItemType
    cause: QuarantineCause = Field(
        description="`changed` after it was approved, `new` on a known server, or `suspicious`: its text addresses the "
        "model."
    )
    reason: str = Field(description="The same in words.")
    passage: str | None = Field(description="The suspicious text, with invisible characters made visible.")
    state: QuarantineState = Field(description="`rejected` if a person has decided against it.")
    since: str = Field(description="When the definition was first seen.")
    has_approved: bool = Field(description="Whether an earlier definition is approved: searches show that one.")


class QuarantineListResponse(ResponseModel):
    """All definitions in quarantine."""

    tools: list[QuarantinedResponse]
    total: int


class FieldChangeResponse(ResponseModel):
    """A field of a definition that is not what was approved."""

    field: str
    diff: str = Field(description="In the unified format, with invisible characters made visible.")


class QuarantineDetailResponse(QuarantinedResponse):
    """A definition in quarantine, and how it differs from the approved one."""

    digest: str
    changes: list[FieldChangeResponse]


class DecisionResponse(ResponseModel):
    """The definitions that a decision was written for."""

    tool_ids: list[str]
