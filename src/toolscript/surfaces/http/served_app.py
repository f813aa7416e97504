"""The application that the HTTP surface serves, which may still be opening when the port is already listening."""

from __future__ import annotations

import asyncio

from toolscript.app.app import App
from toolscript.domain.errors import Unavailable
from toolscript.settings import Settings

PATIENCE_SECONDS = 30.0


class ServedApp:
    """What is served: an application that may still be on its way, because a port should answer before that."""

    def __init__(self, settings: Settings, app: App | None = None, *, ready: bool = True) -> None:
        self.settings = settings
        self.current = app
        self._ready = asyncio.Event()
        if ready:
            self._ready.set()

    @property
    def is_ready(self) -> bool:
        """Whether every server has been tried, or what it offers is known from before."""
        return self._ready.is_set()

    def mark_ready(self) -> None:
        """To be called once that is so."""
        self._ready.set()

    async def wait_until_ready(self) -> App:
        """The application, with its servers tried. Raises Unavailable when that takes too long."""
        try:
            await asyncio.wait_for(self._ready.wait(), PATIENCE_SECONDS)
        except TimeoutError:
            raise Unavailable("the servers are still being connected: try again in a moment") from None
        return self.app

    @property
    def app(self) -> App:
        """The application. Raises Unavailable while it is being opened."""
        if self.current is None:
            raise Unavailable("the search engine is not ready yet: it is being opened, try again in a moment")
        return self.current
