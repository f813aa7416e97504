"""The application that the HTTP surface serves. The port listens before the application is open."""

from __future__ import annotations

import asyncio

from toolscript.app.app import App
from toolscript.domain.errors import Unavailable
from toolscript.settings import Settings

READY_TIMEOUT_SECONDS = 30.0


class ServedApp:
    """An application that may still be opening: `current` is None until then. It is ready once every server behind the
    gateway was tried, or the catalogue of the last run is indexed."""

    def __init__(self, settings: Settings, app: App | None = None, *, ready: bool = True) -> None:
        self.settings = settings
        self.current = app
        self._ready = asyncio.Event()
        if ready:
            self._ready.set()

    @property
    def is_ready(self) -> bool:
        """Whether `mark_ready` was called."""
        return self._ready.is_set()

    def mark_ready(self) -> None:
        """Lets calls through that wait for the servers."""
        self._ready.set()

    async def wait_until_ready(self) -> App:
        """Returns the application once it is ready. Raises Unavailable after READY_TIMEOUT_SECONDS."""
        try:
            await asyncio.wait_for(self._ready.wait(), READY_TIMEOUT_SECONDS)
        except TimeoutError:
            raise Unavailable("the servers are still connecting: try again in a moment") from None
        return self.app

    @property
    def app(self) -> App:
        """The application. Raises Unavailable while it is being opened."""
        if self.current is None:
            raise Unavailable("the search engine is not ready: it is still starting, try again in a moment")
        return self.current
