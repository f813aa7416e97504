"""Requests and responses about workflows."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toolscript.domain.programs import Language
from toolscript.surfaces.http.schemas.models import RequestModel, ResponseModel

PARAMETERS = "The JSON Schema of its arguments, an object. The program finds them in the variable `params`."
RESULT = (
    "The JSON Schema of what the program returns, which is checked against it. The tool's `outputSchema` is this one, "
    "or for other values than objects one with the field `result`."
)


class WorkflowRequest(RequestModel):
    """A program to save as a workflow."""

    description: str = Field(description="What the workflow does: searches find it by this.")
    language: Language = Field(description="The language of the program.")
    source: str = Field(description="The program, as `POST /api/v1/run` takes it.")
    parameters: dict[str, Any] | None = Field(default=None, description=PARAMETERS)
    result: dict[str, Any] | None = Field(default=None, description=RESULT)


class WorkflowSummaryResponse(ResponseModel):
    """A workflow without its program."""

    name: str
    tool_id: str = Field(description="The id of the tool that the workflow is.")
    description: str
    language: Language
    is_read_only: bool = Field(description="Whether it calls read-only tools only; then it can call no others.")
    saved_at: str
    saved_by: str = Field(description="The name of the key that it was saved with, or `owner`.")


class WorkflowListResponse(ResponseModel):
    """The workflows."""

    workflows: list[WorkflowSummaryResponse]
    total: int


class WorkflowResponse(WorkflowSummaryResponse):
    """A workflow with its program."""

    parameters: dict[str, Any] = Field(description=PARAMETERS)
    result: dict[str, Any] | None = Field(description=RESULT)
    source: str


class SavedWorkflowResponse(WorkflowResponse):
    """A workflow that was saved."""

    quarantined: str | None = Field(description="Why it cannot be called until somebody approves it.")
