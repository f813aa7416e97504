"""The HTTP application on a port."""

from __future__ import annotations

import ipaddress
import socket
import sys
from contextlib import nullcontext

import uvicorn

from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.settings import Settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.connection import LimitedConnection
from toolscript.surfaces.http.open_files import raise_file_limit
from toolscript.surfaces.http.served_app import ServedApp


class HttpServer:
    """Binds the port when created. The application may be opened later: until then every route answers 503."""

    def __init__(self, settings: Settings) -> None:
        """Raises Unavailable if the port cannot be bound."""
        raise_file_limit()
        self.served = ServedApp(settings, ready=False)
        self._socket = listen(settings)
        self.url = _get_url(self._socket)  # now: a server that is stopped while it starts has no socket any more
        config = uvicorn.Config(
            create_http_app(self.served),
            http=LimitedConnection,
            ws="none",  # a WebSocket would be a connection without limits
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # a client could choose them: its address is that of the connection
            timeout_graceful_shutdown=current_limits().shutdown_requests,
        )
        self._server = uvicorn.Server(config)
        # uvicorn's signal handlers would end the process before the application is closed.
        self._server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]

    @property
    def is_used(self) -> bool:
        """Whether some client is connected."""
        return bool(self._server.server_state.connections)

    async def run(self) -> None:
        """Serves until stopped."""
        with self._socket:
            await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Stops the server after the requests in progress are answered, and subscriptions are ended."""
        self._server.should_exit = True
        self.served.is_stopping.set()
        if self.served.current:
            self.served.current.tools.native_changes.end_streams()


def _get_url(listening: socket.socket) -> str:
    """The address for clients on this machine."""
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(settings: Settings) -> socket.socket:
    """A socket that listens at the address of the settings. Raises Unavailable."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with this protocol; without it the last bytes wait for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if sys.platform == "win32":  # where SO_REUSEADDR would let a second gateway listen on the port of the first
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise Unavailable(
            f"cannot listen on port {settings.port} of {settings.host} ({error.strerror}): choose another with --port, "
            "or 0 for any free one",
            details={"field": "--port"},
        ) from error
    return listening
