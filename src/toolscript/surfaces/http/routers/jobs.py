"""Ingest jobs over HTTP: files and folders become documents or knowledge in the background."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field, ValidationError
from starlette.datastructures import FormData, UploadFile

from toolscript.domain.errors import InvalidArguments
from toolscript.domain.files.jobs import FileState, Job, JobTarget
from toolscript.services.ingest.jobs import IngestRequest
from toolscript.surfaces.http.bodies import RequestModel, read_json
from toolscript.surfaces.http.dependencies import JOB_OWNER, CurrentApp, JobOwner, get_job, get_job_owner
from toolscript.surfaces.http.openapi import errors, request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import jobs as responses


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


MULTIPART = "multipart/form-data"
MAX_FILES = 1000
MAX_LISTED = 1000
MAX_NAME_CHARACTERS = 512

router = APIRouter(prefix="/api/v1", tags=["ingest"], dependencies=[JOB_OWNER], responses=errors(429))

Owner = Annotated[JobOwner, Depends(get_job_owner)]
OwnJob = Annotated[Job, Depends(get_job)]

_UPLOAD = {
    "schema": {
        "type": "object",
        "required": ["file"],
        "properties": {
            "file": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "options": {"type": "string", "description": "The other fields of the JSON body, as JSON."},
            "job": {"type": "string", "description": "Id of a job to add the files to."},
        },
    }
}


def _describe_body() -> dict[str, Any]:
    body = request_body(IngestPathsRequest)
    body["requestBody"]["content"][MULTIPART] = _UPLOAD
    return body


@router.post(
    "/ingest",
    summary="Ingest files: upload them, or name paths that the gateway may read",
    description="Starts a job. Each file can be searched as soon as it is done. Files are uploaded in fields `file` "
    f"of `{MULTIPART}`, up to 256 MiB together; file names identify them, so that a later upload replaces them.",
    status_code=202,
    responses=errors(400, 404, 409),
    openapi_extra=_describe_body(),
)
async def ingest_files(request: Request, app: CurrentApp, owner: Owner) -> JsonResponse[responses.JobResponse]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == MULTIPART:
        async with request.form(max_files=MAX_FILES, max_fields=2) as form:
            files = [(each.filename or "", await each.read()) for each in _list_uploads(form)]
            job_id = _read_text(form, "job") or None
            wanted = _parse_options(_read_text(form, "options")).to_request(owner.target, owner.tenant)
        job = await app.texts.jobs.upload(wanted, files, job_id)
    else:
        body = await read_json(request, IngestPathsRequest, lambda body: body)
        wanted = body.to_request(owner.target, owner.tenant)
        found = await app.texts.jobs.find(wanted, body.paths, is_owner=owner.is_data_owner)
        job = await app.texts.jobs.start(wanted, found, is_owner=owner.is_data_owner)
    return JsonResponse(responses.build_job_response(job), 202)


@router.get("/jobs", summary="List ingest jobs, newest first")
async def list_jobs(
    app: CurrentApp,
    owner: Owner,
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of jobs.")] = 20,
) -> JsonResponse[responses.JobListResponse]:
    jobs = await app.texts.jobs.list_jobs(owner.target, owner.tenant, limit=limit)
    return JsonResponse(responses.build_job_list_response(jobs))


@router.get("/jobs/{job_id}", summary="How far an ingest job is", responses=errors(404))
async def get_job_state(job: OwnJob) -> JsonResponse[responses.JobResponse]:
    return JsonResponse(responses.build_job_response(job))


@router.get(
    "/jobs/{job_id}/files", summary="The files of an ingest job, and what became of each", responses=errors(404)
)
async def list_job_files(
    app: CurrentApp,
    job: OwnJob,
    state: Annotated[list[FileState] | None, Query(description="Only files in these states.")] = None,
    after: Annotated[int, Query(ge=-1, description="Start after this number: `next` of the previous page.")] = -1,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="Maximum number of files.")] = 100,
) -> JsonResponse[responses.JobFileListResponse]:
    files = await app.texts.jobs.list_files(job, after=after, limit=limit + 1, states=state)
    return JsonResponse(responses.build_job_files_response(files, app.texts.jobs.find_steps, limit=limit))


@router.post("/jobs/{job_id}/cancel", summary="Cancel an ingest job; what is done stays", responses=errors(404))
async def cancel_job(app: CurrentApp, job: OwnJob) -> JsonResponse[responses.JobResponse]:
    return JsonResponse(responses.build_job_response(await app.texts.jobs.cancel(job)))


@router.post(
    "/jobs/{job_id}/resume", summary="Continue a cancelled job, and try again what failed", responses=errors(404)
)
async def resume_job(app: CurrentApp, job: OwnJob) -> JsonResponse[responses.JobResponse]:
    return JsonResponse(responses.build_job_response(await app.texts.jobs.resume(job)))


def _list_uploads(form: FormData) -> list[UploadFile]:
    """The uploaded files. Raises InvalidArguments for other fields, and for names that identify nothing."""
    unknown = sorted(set(form) - {"file", "options", "job"})
    if unknown:
        raise InvalidArguments(
            f"{unknown[0]}: unknown field; allowed are file, options and job", details={"field": unknown[0]}
        )
    uploads = [each for each in form.getlist("file") if isinstance(each, UploadFile)]
    if not uploads or len(uploads) != len(form.getlist("file")):
        raise InvalidArguments("file: expected at least one file with a file name", details={"field": "file"})
    for each in uploads:
        name = each.filename or ""
        if not name.strip() or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
            raise InvalidArguments(
                f"file: invalid file name {name[:80]!r}; expected 1 to {MAX_NAME_CHARACTERS} printable characters",
                details={"field": "file"},
            )
        if PurePosixPath(name).name in {"", ".."}:
            raise InvalidArguments(
                f"file: invalid file name {name[:80]!r}; expected one that ends with the name of a file",
                details={"field": "file"},
            )
    return uploads


def _read_text(form: FormData, name: str) -> str:
    value = form.get(name)
    if isinstance(value, UploadFile):
        raise InvalidArguments(f"{name}: expected text, not a file", details={"field": name})
    return value or ""


def _parse_options(text: str) -> IngestOptions:
    try:
        return IngestOptions.model_validate_json(text or "{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(["options", *map(str, first["loc"])])
        raise InvalidArguments(f"{field}: {first['msg']}", details={"field": field}) from error
