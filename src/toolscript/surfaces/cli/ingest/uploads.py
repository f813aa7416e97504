"""Files that are sent to a gateway on another machine, a few at a time."""

from __future__ import annotations

import json
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid
from toolscript.domain.files.jobs import FileState, JobTarget
from toolscript.surfaces.cli.ingest.wanted import WantedIngest
from toolscript.surfaces.cli.terminal.text import format_count, print_failed, print_note

MAX_UPLOAD_BYTES = 32 * 2**20
MAX_UPLOAD_FILES = 200
# Larger files are not read anyway.
MAX_FILE_BYTES = 200 * 10**6


@dataclass(frozen=True, slots=True)
class Upload:
    """Files for one request."""

    options: Mapping[str, Any]
    files: Sequence[tuple[str, bytes]]

    def encode(self, job_id: str | None) -> tuple[str, bytes]:
        """The type and the content of a multipart form; with a job's id the files are added to it."""
        boundary = secrets.token_hex(16)
        parts = [_build_part("options", json.dumps(self.options).encode())]
        parts += [_build_part("job", job_id.encode())] if job_id else []
        parts += [_build_part("file", content, name) for name, content in self.files]
        lines = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
        return f"multipart/form-data; boundary={boundary}", lines + b"--%s--\r\n" % boundary.encode()


def split_uploads(wanted: WantedIngest, names: Sequence[str], tenant: str) -> Iterator[Upload]:
    """The files below these paths in requests of a few megabytes. What cannot be read is reported. Raises Invalid when
    nothing can."""
    from toolscript.services.ingest.jobs import check_request, find_files

    request = wanted.to_request(tenant)
    found = find_files(request, names)
    check_request(request, found)
    for file in found.files:
        if file.state is FileState.FAILED:
            print_failed(file.path, file.outcome.problem)
    if found.skipped:
        skipped = format_count(sum(found.skipped.values()), "file or folder", "files and folders")
        print_note(f"skipped: {skipped}; --dry-run says why")
    batch: list[tuple[str, bytes]] = []
    size, is_empty = 0, True
    for file in found.files:
        if file.state is not FileState.WAITING or (content := _read(file.path)) is None:
            continue
        if batch and (size + len(content) > MAX_UPLOAD_BYTES or len(batch) == MAX_UPLOAD_FILES):
            yield Upload(wanted.details, batch)
            batch, size = [], 0
        batch.append((file.name if wanted.target is JobTarget.DOCUMENTS else file.path, content))
        size, is_empty = size + len(content), False
    if is_empty:
        raise Invalid(f"no readable files in {', '.join(names)}")
    yield Upload(wanted.details, batch)


def _read(path: str) -> bytes | None:
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            print_failed(path, "not a regular file: name the files themselves")
            return None
        if status.st_size > MAX_FILE_BYTES:
            print_failed(path, f"larger than {MAX_FILE_BYTES // 10**6} MB: split it")
            return None
        return Path(path).read_bytes()
    except OSError as error:
        print_failed(path, error.strerror or str(error))
        return None


def _build_part(name: str, content: bytes, file_name: str | None = None) -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"'
    if file_name is not None:
        escaped = file_name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head += f'; filename="{escaped}"\r\nContent-Type: application/octet-stream'
    return f"{head}\r\n\r\n".encode() + content
