"""Workflows as JSON, and from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from toolscript.domain.errors import InvalidArguments
from toolscript.domain.programs import NO_PARAMETERS, Language, Workflow
from toolscript.surfaces.json.definitions import format_time

if TYPE_CHECKING:
    from toolscript.services.code.workflows import SavedWorkflow

PARAMETERS = "The JSON Schema of its arguments, an object. The program finds them in the variable `params`."
RESULT = (
    "The JSON Schema of what the program returns, which is checked against it. The tool's `outputSchema` is this one, "
    "or for other values than objects one with the field `result`."
)


class WorkflowSummaryResponse(TypedDict):
    """A workflow without its program."""

    name: str
    tool_id: Annotated[str, "The id of the tool that the workflow is."]
    description: str
    language: Language
    is_read_only: Annotated[bool, "Whether it calls read-only tools only; then it can call no others."]
    saved_at: str
    saved_by: Annotated[str, "The name of the key that it was saved with, or `owner`."]


class WorkflowListResponse(TypedDict):
    """The workflows."""

    workflows: list[WorkflowSummaryResponse]
    total: int


class WorkflowResponse(WorkflowSummaryResponse):
    """A workflow with its program."""

    parameters: Annotated[dict[str, Any], PARAMETERS]
    result: Annotated[dict[str, Any] | None, RESULT]
    source: str


class SavedWorkflowResponse(WorkflowResponse):
    """A workflow that was saved."""

    quarantined: Annotated[str | None, "Why it cannot be called until somebody approves it."]


def parse_workflow(name: str, body: Mapping[str, Any]) -> Workflow:
    """The workflow that the body of `PUT /api/v1/workflows/{name}` describes. Raises InvalidArguments for schemas
    that are none."""
    for field in ("parameters", "result"):
        if not isinstance(body.get(field) or {}, dict):
            raise InvalidArguments(f"{field}: must be a JSON Schema, an object", details={"field": field})
    return Workflow(
        name,
        body["description"],
        Language(body["language"]),
        body["source"],
        NO_PARAMETERS if body.get("parameters") is None else body["parameters"],
        result=body.get("result"),
    )


def build_workflows_response(workflows: Sequence[Workflow]) -> WorkflowListResponse:
    return {"workflows": [_build_summary(workflow) for workflow in workflows], "total": len(workflows)}


def build_workflow_response(workflow: Workflow) -> WorkflowResponse:
    """Builds a workflow with its program."""
    return {
        **_build_summary(workflow),
        "parameters": dict(workflow.parameters),
        "result": None if workflow.result is None else dict(workflow.result),
        "source": workflow.source,
    }


def build_saved_response(saved: SavedWorkflow) -> SavedWorkflowResponse:
    """Builds the response of what saves a workflow."""
    return {**build_workflow_response(saved.workflow), "quarantined": saved.quarantine or None}


def _build_summary(workflow: Workflow) -> WorkflowSummaryResponse:
    return {
        "name": workflow.name,
        "tool_id": workflow.item.id,
        "description": workflow.description,
        "language": workflow.language,
        "is_read_only": workflow.is_read_only,
        "saved_at": format_time(workflow.saved_at),
        "saved_by": workflow.saved_by,
    }
