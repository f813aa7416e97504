"""Workflows as JSON, and from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolscript.domain.errors import InvalidArguments
from toolscript.domain.programs import NO_PARAMETERS, Language, Workflow, WorkflowCase

if TYPE_CHECKING:
    from toolscript.domain.programs import CaseResult
    from toolscript.services.code.workflows import SavedWorkflow


def parse_workflow(name: str, body: Mapping[str, Any]) -> Workflow:
    """The workflow that the body of `PUT /api/v1/workflows/{name}` describes. Raises InvalidArguments for schemas and
    tests that are none."""
    for field in ("parameters", "result"):
        if not isinstance(body.get(field) or {}, dict):
            raise InvalidArguments(f"{field}: must be a JSON Schema, an object", details={"field": field})
    cases = _parse_cases(body.get("cases") or [])
    return Workflow(
        name,
        body["description"],
        Language(body["language"]),
        body["source"],
        NO_PARAMETERS if body.get("parameters") is None else body["parameters"],
        cases,
        body.get("result"),
    )


def _parse_cases(cases: Any) -> tuple[WorkflowCase, ...]:
    expected = 'must be a list of tests: [{"arguments": {…}, "expected": …}]'
    if not isinstance(cases, list):
        raise InvalidArguments(f"cases: {expected}", details={"field": "cases"})
    for number, case in enumerate(cases):
        if not isinstance(case, dict) or not isinstance(case.get("arguments", {}), dict) or "expected" not in case:
            raise InvalidArguments(f"cases.{number}: {expected}", details={"field": f"cases.{number}"})
    return tuple(WorkflowCase(case.get("arguments", {}), case["expected"]) for case in cases)


def build_workflows_response(workflows: Sequence[Workflow]) -> dict[str, Any]:
    """Builds the list of workflows, or of the versions of one."""
    return {"workflows": [_build_summary(workflow) for workflow in workflows], "total": len(workflows)}


def build_workflow_response(workflow: Workflow) -> dict[str, Any]:
    """Builds one version of a workflow, with its program and tests."""
    cases = [{"arguments": dict(case.arguments), "expected": case.expected} for case in workflow.cases]
    return {
        **_build_summary(workflow),
        "parameters": dict(workflow.parameters),
        "result": None if workflow.result is None else dict(workflow.result),
        "source": workflow.source,
        "cases": cases,
    }


def build_saved_response(saved: SavedWorkflow) -> dict[str, Any]:
    """Builds the response of what saves a workflow."""
    response = build_workflow_response(saved.workflow)
    return {**response, "is_new_version": saved.is_new, "quarantined": saved.quarantine or None}


def build_test_response(workflow: Workflow, results: Sequence[CaseResult]) -> dict[str, Any]:
    """Builds the results of a workflow's tests."""
    return {
        "name": workflow.name,
        "version": workflow.version,
        "passed": sum(result.has_passed for result in results),
        "failed": sum(not result.has_passed for result in results),
        "results": [
            {
                "arguments": dict(result.case.arguments),
                "expected": result.case.expected,
                "value": result.value,
                "passed": result.has_passed,
                "message": result.message or None,
                "ms": round(result.took_ms, 1),
            }
            for result in results
        ],
    }


def _build_summary(workflow: Workflow) -> dict[str, Any]:
    return {
        "name": workflow.name,
        "tool_id": workflow.item.id,
        "version": workflow.version,
        "description": workflow.description,
        "language": workflow.language.value,
        "is_read_only": workflow.is_read_only,
        "tests": len(workflow.cases),
        "saved_at": datetime.fromtimestamp(workflow.saved_at, UTC).isoformat(timespec="seconds"),
        "saved_by": workflow.saved_by,
    }
