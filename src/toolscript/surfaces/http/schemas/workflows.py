"""Requests and responses about workflows."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toolscript.domain.programs import MAX_VERSION, Language
from toolscript.surfaces.http.schemas.models import RequestModel, ResponseModel

PARAMETERS = "The JSON Schema of its arguments, an object. The program finds them in the variable `params`."
RESULT = (
    "The JSON Schema of what the program returns, which is checked against it. The tool's `outputSchema` is this one, "
    "or for other values than objects one with the field `result`."
)
CASES = "Tests: arguments, and what the program must return for them."


class WorkflowCaseBody(RequestModel):
    """A test of a workflow."""

    arguments: dict[str, Any] = Field(default_factory=dict, description="What the workflow is called with.")
    expected: Any = Field(default=None, description="What the program must return.")


class WorkflowRequest(RequestModel):
    """A program to save as a workflow."""

    description: str = Field(description="What the workflow does: searches find it by this.")
    language: Language = Field(description="The language of the program.")
    source: str = Field(description="The program, as `POST /api/v1/run` takes it.")
    parameters: dict[str, Any] | None = Field(default=None, description=PARAMETERS)
    result: dict[str, Any] | None = Field(default=None, description=RESULT)
    cases: list[WorkflowCaseBody] = Field(default_factory=list, description=CASES)


class RestoreRequest(RequestModel):
    """The version to restore."""

    version: int = Field(ge=1, le=MAX_VERSION, description="An older version: it is saved again, as the newest one.")


class WorkflowSummaryResponse(ResponseModel):
    """A version of a workflow, without its program."""

    name: str
    tool_id: str = Field(description="The id of the tool that the workflow is.")
    version: int = Field(description="Counts from 1; the newest version is the tool.")
    description: str
    language: Language
    is_read_only: bool = Field(description="Whether it calls read-only tools only; then it can call no others.")
    tests: int = Field(description="The number of its tests.")
    saved_at: str
    saved_by: str = Field(description="The name of the key that it was saved with, or `owner`.")


class WorkflowListResponse(ResponseModel):
    """Workflows, or versions of one."""

    workflows: list[WorkflowSummaryResponse]
    total: int


class WorkflowResponse(WorkflowSummaryResponse):
    """A version of a workflow."""

    parameters: dict[str, Any] = Field(description=PARAMETERS)
    result: dict[str, Any] | None = Field(description=RESULT)
    source: str
    cases: list[WorkflowCaseBody] = Field(description=CASES)


class SavedWorkflowResponse(WorkflowResponse):
    """A workflow that was saved."""

    is_new_version: bool = Field(description="False if the newest version was the same already.")
    quarantined: str | None = Field(description="Why it cannot be called until somebody approves it.")


class CaseResultResponse(ResponseModel):
    """How a test went."""

    arguments: dict[str, Any]
    expected: Any
    value: Any = Field(description="What the program returned.")
    passed: bool
    message: str | None = Field(description="Why it failed.")
    ms: float


class WorkflowTestResponse(ResponseModel):
    """How the tests of a workflow went."""

    name: str
    version: int
    passed: int
    failed: int
    results: list[CaseResultResponse]
