"""Requests about ingest jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field

from toolscript.domain.files.jobs import JobTarget
from toolscript.services.ingest.jobs import IngestRequest
from toolscript.surfaces.http.schemas.models import RequestModel


class IngestOptions(RequestModel):
    """Details of the files."""

    include: list[str] = Field(
        default=[], max_length=100, description="Only files that match one of these: `*.md`, `guides/*`."
    )
    exclude: list[str] = Field(default=[], max_length=100, description="No files or folders that match one of these.")
    metadata: dict[str, Any] = Field(
        default={}, description="Metadata of all documents.", examples=[{"team": "search"}]
    )
    title: str | None = Field(default=None, max_length=500, description="Title of the source (knowledge, one file).")
    authors: list[str] = Field(default=[], max_length=50, description="Authors of the source (knowledge, one file).")
    type: str | None = Field(default=None, max_length=100, description="Type of the sources (knowledge).")
    extract: bool = Field(default=True, description="Whether a language model may read them (knowledge).")

    def to_request(self, target: JobTarget, tenant: str) -> IngestRequest:
        """Converts it to what the service takes."""
        about = {"title": self.title, "authors": self.authors, "type": self.type, "extract": self.extract}
        details = {"metadata": self.metadata} if target is JobTarget.DOCUMENTS else about
        return IngestRequest(target, tenant, tuple(self.include), tuple(self.exclude), details)


class IngestPathsRequest(IngestOptions):
    """Files and folders that the gateway reads itself."""

    paths: list[str] = Field(
        min_length=1,
        max_length=1000,
        description="Absolute paths on the gateway's machine, below a folder of TOOLSCRIPT_INGEST_FOLDERS.",
        examples=[["/srv/handbooks"]],
    )
    ignore_files: bool = Field(default=True, description="Whether .gitignore and .toolscriptignore files count.")
    max_bytes: int | None = Field(default=None, ge=0, description="Leave out larger files of folders.")
    as_one: bool = Field(default=False, description="Make one source of a folder: a book of many pages (knowledge).")

    def to_request(self, target: JobTarget, tenant: str) -> IngestRequest:
        options = super().to_request(target, tenant)
        return replace(options, as_one=self.as_one, obeys_ignore_files=self.ignore_files, max_bytes=self.max_bytes)
