"""Requests about workflows."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toolscript.domain.programs import Language
from toolscript.surfaces.http.schemas.models import RequestModel
from toolscript.surfaces.json.workflows import PARAMETERS, RESULT


class WorkflowRequest(RequestModel):
    """A program to save as a workflow."""

    description: str = Field(description="What the workflow does: searches find it by this.")
    language: Language = Field(description="The language of the program.")
    source: str = Field(description="The program, as `POST /api/v1/run` takes it.")
    parameters: dict[str, Any] | None = Field(default=None, description=PARAMETERS)
    result: dict[str, Any] | None = Field(default=None, description=RESULT)
