"""The application that the HTTP surface serves. The port listens before the application is open."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from toolscript.app.app import App
from toolscript.configuration.snippets import ConfigurationPlace
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.evaluation.searches import CONCURRENT_SEARCHES
from toolscript.settings import Settings
from toolscript.surfaces.callers import STILL_STARTING


class ServedApp:
    """An application that may still be opening: `current` is None until then, and while another one takes its place. It
    is ready once every server behind the gateway was tried, or the catalogue of the last run is indexed."""

    def __init__(self, settings: Settings, app: App | None = None, *, ready: bool = True) -> None:
        self.settings = settings
        self._current = app
        self._open, self._ready = asyncio.Event(), asyncio.Event()
        self.has_become_ready = asyncio.Event()
        """Set when it is ready for the first time, and for ever after."""
        self.is_stopping = asyncio.Event()
        """Set when the server stops: streams end then."""
        self.place: ConfigurationPlace | None = None
        """The configuration files that servers can be added to, if there are any."""
        self.evaluation_slots = asyncio.Semaphore(CONCURRENT_SEARCHES)
        """How many searches evaluations make at the same time, all of them together."""
        if app:
            self._open.set()
        if ready:
            self.mark_ready()

    @property
    def current(self) -> App | None:
        """The application; None while it is being opened. With None, it has to be marked as ready again."""
        return self._current

    @current.setter
    def current(self, app: App | None) -> None:
        self._current = app
        if app:
            self._open.set()
        else:
            self._open.clear()
            self._ready.clear()

    @property
    def is_ready(self) -> bool:
        """Whether `mark_ready` was called for this application."""
        return self._ready.is_set()

    def mark_ready(self) -> None:
        """Notes that the servers were tried."""
        self._ready.set()
        self.has_become_ready.set()

    async def wait_until_open(self) -> App:
        """Returns the application once it is open. Raises Unavailable after `current_limits().open_app`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(current_limits().open_app):
                await self._open.wait()
        return self.app

    @property
    def app(self) -> App:
        """The application. Raises Unavailable while it is being opened."""
        if self._current is None:
            raise Unavailable(STILL_STARTING)
        return self._current
