"""One session for every command: requests go to the gateway that runs on the data folder, or, when none runs, to the
application opened in this process. Both give the same JSON.

Only one process can open an embedded index. While a gateway runs, it is the one that writes; knowledge, which a gateway
only reads, cannot be written then (see `open_knowledge_writer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from toolscript.domain.errors import RateLimited, Unavailable
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.client.catalogue import prepare_catalogue, read_configuration
from toolscript.surfaces.cli.client.gateway import find_gateway_url, is_gateway_running, send_to_gateway
from toolscript.surfaces.logs import configure_logging

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.services.knowledge.ingest import IngestKnowledge
    from toolscript.services.knowledge.transfer import ImportKnowledge

Result = TypeVar("Result")
Local = Callable[["App"], Awaitable[Any]]


def read_settings(flags: Mapping[str, Any]) -> Settings:
    """The settings of a command with these flags. Starts logging at their level. Raises Invalid."""
    settings = load_settings(**flags)
    configure_logging(settings.log_level)
    return settings


@dataclass(frozen=True, slots=True)
class CommandSession:
    """Answers requests."""

    settings: Settings
    app: App | None = None
    """The application opened in this process; None when a gateway answers."""

    async def request(self, path: str, local: Local, **http: Any) -> Any:
        """What `local` makes of the application, or the gateway's response to an HTTP request (see `send`)."""
        return await local(self.app) if self.app is not None else await self.send(path, **http)

    async def send(self, path: str, **http: Any) -> Any:
        """The gateway's response to an HTTP request, described as `send_to_gateway` takes it. Waits when the gateway
        limits the rate. Raises the error that the gateway responds with, and Unavailable when it has stopped."""
        while True:
            try:
                response = send_to_gateway(self.settings, path, **http)
            except RateLimited as error:
                await asyncio.sleep(float(error.details.get("retry_after_seconds", 1)))
                continue
            if response is None:
                raise Unavailable("the gateway has stopped in the meantime: run the command again")
            return response


@asynccontextmanager
async def open_session(
    settings: Settings, *, use_gateway: bool = True, with_catalogue: bool = True, refresh: bool = False
) -> AsyncIterator[CommandSession]:
    """A session with the running gateway, or with the application opened here.

    With a catalogue, the application's catalogue is first updated to the configuration, and with `refresh` read again
    from all servers. Documents and knowledge do not need it. Raises Invalid or Unavailable.
    """
    if use_gateway and is_gateway_running(settings):
        yield CommandSession(settings)
        return
    configuration = read_configuration(settings) if with_catalogue else None
    from toolscript.app.app import open_app  # --help must not wait for engines to load

    async with open_app(settings) as app:
        if configuration:
            await prepare_catalogue(app, configuration, refresh=refresh)
        yield CommandSession(settings, app)


def run_in_session(settings: Settings, use: Callable[[CommandSession], Awaitable[Result]], **how: bool) -> Result:
    """Opens a session (`how` as `open_session` takes it) and returns what `use` makes of it."""

    async def run() -> Result:
        async with open_session(settings, **how) as session:
            return await use(session)

    return asyncio.run(run())


def request_once(settings: Settings, path: str, local: Local, *, refresh: bool = False, **http: Any) -> Any:
    """The response to one request in a session of its own, with a catalogue."""
    return run_in_session(settings, lambda session: session.request(path, local, **http), refresh=refresh)


@dataclass(frozen=True, slots=True)
class KnowledgeWriter:
    """The services that write knowledge."""

    ingest: IngestKnowledge
    imports: ImportKnowledge


@asynccontextmanager
async def open_knowledge_writer(settings: Settings) -> AsyncIterator[KnowledgeWriter]:
    """Opens the application to write knowledge. Raises Unavailable while a gateway has the embedded index open."""
    if not settings.index and is_gateway_running(settings):
        raise Unavailable(
            f"the gateway at {find_gateway_url(settings.data)} uses {settings.data}, and knowledge cannot be written "
            "while it runs: stop the gateway, run this command again, and restart the gateway",
            details={"folder": str(settings.data)},
        )
    from toolscript.app.app import open_app  # --help must not wait for engines to load

    async with open_app(settings) as app:
        if app.ingest_knowledge and app.import_knowledge:  # None only in an application that serves
            yield KnowledgeWriter(app.ingest_knowledge, app.import_knowledge)
