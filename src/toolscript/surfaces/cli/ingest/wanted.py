"""What a command is to ingest: the same for this process, the gateway on the data folder, and another gateway."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolscript.domain.files.jobs import FileState, JobTarget

if TYPE_CHECKING:
    from toolscript.services.ingest.jobs import IngestRequest


@dataclass(frozen=True, slots=True)
class WantedIngest:
    """What a command is to ingest, as options of the HTTP API name it."""

    target: JobTarget
    details: Mapping[str, Any]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    as_one: bool = False
    ignore_files: bool = True
    max_bytes: int | None = None

    def to_request(self, tenant: str) -> IngestRequest:
        """What the service takes."""
        from toolscript.services.ingest.jobs import IngestRequest

        owner = tenant if self.target is JobTarget.DOCUMENTS else ""
        return IngestRequest(
            self.target,
            owner,
            self.include,
            self.exclude,
            self.details,
            self.as_one,
            self.ignore_files,
            self.max_bytes,
        )

    def to_body(self, names: Sequence[str]) -> dict[str, Any]:
        """The body of `POST /api/v1/ingest` with paths."""
        globs = {"include": list(self.include), "exclude": list(self.exclude), "ignore_files": self.ignore_files}
        paths = [os.path.abspath(name) if name else "" for name in names]  # noqa: PTH100
        return {"paths": paths, "as_one": self.as_one, "max_bytes": self.max_bytes, **globs, **self.details}

    def preview(self, names: Sequence[str], tenant: str) -> dict[str, Any]:
        """What would be ingested. Raises Invalid for details that do not fit."""
        from toolscript.services.ingest.jobs import check_request, find_files

        request = self.to_request(tenant)
        found = find_files(request, names)
        check_request(request, found)
        waiting = [file for file in found.files if file.state is FileState.WAITING]
        failed = [file for file in found.files if file.state is FileState.FAILED]
        return {
            "files": [{"path": file.path, "bytes": file.size} for file in waiting],
            "failed": [{"path": file.path, "problem": file.outcome.problem} for file in failed],
            "skipped": dict(found.skipped),
        }
