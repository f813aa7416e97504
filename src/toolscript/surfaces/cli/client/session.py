"""One session for every command: requests go to the gateway that `--gateway` names or that runs on the data folder, or,
when none runs, to the application opened in this process. Both give the same JSON.

Only one process can open an embedded index. While a gateway runs, it is the one that writes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from toolscript.domain.errors import FolderInUse, RateLimited, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.client.gateway import is_gateway_running, send_to_gateway
from toolscript.surfaces.cli.client.notices import LastingEvents, report_unused_variables, report_void_settings
from toolscript.surfaces.cli.terminal.options import get_overrides
from toolscript.surfaces.cli.terminal.text import print_answer, print_note
from toolscript.surfaces.logs import configure_logging

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.app.catalogue_use import CatalogueUse

Result = TypeVar("Result")
Local = Callable[["App"], Awaitable[Any]]
ToJson = Callable[[Any], Any]
Show = Callable[[Any], None]

FOLDER_POLL_SECONDS = 0.1


def read_settings(*, is_service: bool = False) -> Settings:
    """The settings of the running command. Starts logging at their level: everything for a service, lasting conditions
    once a day for others. Raises Invalid."""
    settings = load_settings(**get_overrides())
    handler = configure_logging(settings.log_level)
    if not is_service:
        handler.addFilter(LastingEvents(settings.data))
    report_unused_variables(settings, is_service=is_service)
    return settings


@dataclass(frozen=True, slots=True)
class CommandSession:
    """Answers requests."""

    settings: Settings
    app: App | None = None
    """The application opened in this process; None when a gateway answers."""
    classified: int = 0
    """The number of the demo's tools that were classified when it was opened."""

    async def request(self, path: str, local: Local, to_json: ToJson | None = None, /, **http: Any) -> Any:
        """The gateway's response to an HTTP request (see `send`); without a gateway, what `local` gets from the
        application, converted to the same JSON by `to_json`."""
        if self.app is None:
            return await self.send(path, **http)
        result = await local(self.app)
        return to_json(result) if to_json else result

    async def send(self, path: str, /, *, waits: bool = True, **http: Any) -> Any:
        """The gateway's response to an HTTP request, described as `send_to_gateway` takes it. Unless `waits` is false,
        waits when the gateway limits the rate. Raises the error that the gateway responds with, and Unavailable when
        it has stopped."""
        while True:
            try:
                response = send_to_gateway(self.settings, path, **http)
            except RateLimited as error:
                if not waits:
                    raise
                await asyncio.sleep(float(error.details.get("retry_after_seconds", 1)))
                continue
            if response is None:
                raise Unavailable("the gateway has stopped in the meantime: run the command again")
            return response


def run_in_session(
    settings: Settings,
    use: Callable[[CommandSession], Awaitable[Result]],
    *,
    use_gateway: bool = True,
    with_catalogue: bool = True,
    refresh: bool = False,
    connect_seconds: float | None = None,
    name_failed: bool = True,
) -> Result:
    """What `use` makes of a session with the running gateway, or with the application opened here.

    With a catalogue, the application has the catalogue of the data folder (see `choose_catalogue`). With `refresh` the
    catalogue is first read again from all servers, within `connect_seconds`; failed servers are named, unless the
    command shows them itself. Documents and knowledge do not need a catalogue. Raises Invalid or Unavailable.
    """

    async def attempt() -> Result:
        if use_gateway and is_gateway_running(settings):
            report_void_settings(settings)
            return await use(CommandSession(settings))
        # Beside a gateway, a command must not wait for catalogue and engines to load.
        from toolscript.surfaces.cli.client.catalogue import choose_catalogue, prepare_catalogue

        choice = choose_catalogue(settings, switching=refresh) if with_catalogue else None
        from toolscript.app.app import open_app

        use_of_catalogue: CatalogueUse = "leave" if choice is None else "change" if refresh else "read"
        async with open_app(
            choice.settings if choice else settings, demo=bool(choice and choice.is_demo), catalogue=use_of_catalogue
        ) as app:
            classified = 0
            if choice:
                classified = await prepare_catalogue(
                    app, choice, refresh=refresh, within=connect_seconds, name_failed=name_failed
                )
            return await use(CommandSession(app.settings, app, classified))

    return asyncio.run(wait_for_folder(attempt))


async def wait_for_folder(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """The result of the first attempt that finds no other process in the index folder. Raises FolderInUse if none
    does in time."""
    deadline = time.monotonic() + current_limits().index_folder
    while True:
        try:
            return await attempt()
        except FolderInUse:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(FOLDER_POLL_SECONDS)


def request_once(
    path: str,
    local: Local,
    to_json: ToJson | None = None,
    *,
    show: Show | None = None,
    **http: Any,
) -> Any:
    """Sends the only request of a command (see `CommandSession.request`) and returns the answer; prints it when there
    is a function that shows it."""

    def use(session: CommandSession) -> Awaitable[Any]:
        return session.request(path, local, to_json, **http)

    answer = run_in_session(read_settings(), use)
    if show:
        print_answer(answer, show)
    return answer


def report_change_of_demo() -> None:
    """Prints a note when a command has changed the demo: the demo has a store of its own."""
    from toolscript.surfaces.cli.client.catalogue import choose_catalogue

    settings = load_settings(**get_overrides())
    if not settings.gateway_url and choose_catalogue(settings).is_demo:
        print_note("this changed the built-in demo: it will not be there once servers are configured")
