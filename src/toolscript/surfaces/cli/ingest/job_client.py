"""An ingest job as a command sees it: in the gateway, or in this process when none runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolscript.domain.errors import Invalid
from toolscript.domain.files.jobs import FileState, JobState, JobTarget
from toolscript.domain.limits import current_limits
from toolscript.surfaces.cli.client.session import CommandSession
from toolscript.surfaces.cli.ingest.uploads import split_uploads
from toolscript.surfaces.cli.ingest.wanted import WantedIngest
from toolscript.surfaces.json.jobs import build_job_files_response, build_job_list_response, build_job_response

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.domain.files.jobs import Job

Answer = Mapping[str, Any]
Show = Callable[[Answer, Sequence[Answer]], None]

# Finding files in a large folder takes a while.
START_TIMEOUT_SECONDS = 600.0
UPLOAD_TIMEOUT_SECONDS = 600.0
PAGE_SIZE = 1000


@dataclass(slots=True)
class JobClient:
    """Starts jobs, and follows them until they are done."""

    session: CommandSession
    target: JobTarget
    _running: asyncio.Task[None] | None = field(default=None, init=False)

    async def start(self, wanted: WantedIngest, names: Sequence[str]) -> Answer:
        """Starts a job: in this process, in the gateway on the data folder (it reads the files itself), or in another
        gateway (the files are sent to it)."""
        if app := self.session.app:
            request = wanted.to_request(self.session.settings.tenant)
            job = await app.texts.jobs.start(
                request, await app.texts.jobs.find(request, names, is_owner=True), is_owner=True
            )
            self._running = asyncio.create_task(app.texts.job_runner.run_job(job.id))
            return build_job_response(job)
        if self.session.settings.gateway_url:
            return await self._upload(wanted, names)
        body = wanted.to_body(names)
        return await self._send("/api/v1/ingest", body=body, timeout_seconds=START_TIMEOUT_SECONDS)

    async def wait(self, job: Answer, show: Show) -> Answer:
        """The job when nothing of it is left to do. When the command is interrupted, the job is cancelled."""
        try:
            while job["state"] == JobState.RUNNING:
                show(job, await self.list_files(job["id"], FileState.RUNNING))
                await self._pause()
                job = await self.get(job["id"])
        except asyncio.CancelledError:
            await self.change(job["id"], "cancel")
            raise
        finally:
            if self._running:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)
        return job

    async def get(self, job_id: str) -> Answer:
        """How far a job is."""

        async def local(app: App) -> Answer:
            return build_job_response(await self._find(app, job_id))

        return await self._request(f"/api/v1/jobs/{job_id}", local)

    async def list_jobs(self, limit: int) -> Answer:
        """The newest jobs."""

        async def local(app: App) -> Answer:
            return build_job_list_response(await app.texts.jobs.list_jobs(self.target, self._owner, limit=limit))

        return await self._request("/api/v1/jobs", local, limit=limit, **{"as": self.target.value})

    async def list_files(self, job_id: str, *states: FileState) -> list[Answer]:
        """The files of a job in these states."""
        files: list[Answer] = []
        after: int | None = -1
        while after is not None:
            page = await self._list_page(job_id, states, after)
            files += page["files"]
            after = page["next"]
        return files

    async def change(self, job_id: str, action: str) -> Answer:
        """Cancels or resumes a job."""

        async def local(app: App) -> Answer:
            job = await self._find(app, job_id)
            changed = await (app.texts.jobs.cancel(job) if action == "cancel" else app.texts.jobs.resume(job))
            return build_job_response(changed)

        return await self._request(f"/api/v1/jobs/{job_id}/{action}", local, method="POST")

    async def _list_page(self, job_id: str, states: Sequence[FileState], after: int) -> Answer:
        async def local(app: App) -> Answer:
            job = await self._find(app, job_id)
            files = await app.texts.jobs.list_files(job, after=after, limit=PAGE_SIZE + 1, states=states)
            return build_job_files_response(files, app.texts.jobs.find_steps, limit=PAGE_SIZE)

        path = f"/api/v1/jobs/{job_id}/files"
        wanted = [state.value for state in states]
        return await self._request(path, local, state=wanted, after=after, limit=PAGE_SIZE)

    async def _upload(self, wanted: WantedIngest, names: Sequence[str]) -> Answer:
        if wanted.as_one:
            raise Invalid(
                "--as-one works on the gateway's own machine only: run the command there, or ingest the pages as "
                "sources of their own",
                details={"field": "--as-one"},
            )
        job: Answer = {}
        for content in split_uploads(wanted, names, self.session.settings.tenant):
            job = await self._send(
                "/api/v1/ingest", content=content.encode(job.get("id")), timeout_seconds=UPLOAD_TIMEOUT_SECONDS
            )
        return job

    async def _pause(self) -> None:
        """Waits a moment. Raises what stopped the work in this process."""
        if self._running is None:
            await asyncio.sleep(current_limits().upload_poll)
            return
        done, _ = await asyncio.wait({self._running}, timeout=current_limits().upload_poll)
        for task in done:
            task.result()

    @property
    def _owner(self) -> str:
        return self.session.settings.tenant if self.target is JobTarget.DOCUMENTS else ""

    async def _find(self, app: App, job_id: str) -> Job:
        return await app.texts.jobs.get(job_id, self.target, self._owner)

    async def _request(self, path: str, local: Callable[[App], Any], **http: Any) -> dict[str, Any]:
        response: dict[str, Any] = await self.session.request(path, local, tenant=self.session.settings.tenant, **http)
        return response

    async def _send(self, path: str, **http: Any) -> dict[str, Any]:
        query: dict[str, Any] = {"as": self.target.value}
        response: dict[str, Any] = await self.session.send(path, tenant=self.session.settings.tenant, **query, **http)
        return response
