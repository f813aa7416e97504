"""Workflows as JSON, and from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolscript.domain.errors import InvalidArguments
from toolscript.domain.programs import NO_PARAMETERS, Language, Workflow

if TYPE_CHECKING:
    from toolscript.services.code.workflows import SavedWorkflow


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


def build_workflows_response(workflows: Sequence[Workflow]) -> dict[str, Any]:
    """Builds the list of workflows."""
    return {"workflows": [_build_summary(workflow) for workflow in workflows], "total": len(workflows)}


def build_workflow_response(workflow: Workflow) -> dict[str, Any]:
    """Builds a workflow with its program."""
    return {
        **_build_summary(workflow),
        "parameters": dict(workflow.parameters),
        "result": None if workflow.result is None else dict(workflow.result),
        "source": workflow.source,
    }


def build_saved_response(saved: SavedWorkflow) -> dict[str, Any]:
    """Builds the response of what saves a workflow."""
    return {**build_workflow_response(saved.workflow), "quarantined": saved.quarantine or None}


def _build_summary(workflow: Workflow) -> dict[str, Any]:
    return {
        "name": workflow.name,
        "tool_id": workflow.item.id,
        "description": workflow.description,
        "language": workflow.language.value,
        "is_read_only": workflow.is_read_only,
        "saved_at": datetime.fromtimestamp(workflow.saved_at, UTC).isoformat(timespec="seconds"),
        "saved_by": workflow.saved_by,
    }
