"""The HTTP application on a port, from the moment that the port is taken until someone says stop."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import nullcontext

import uvicorn

from toolscript.domain.errors import Unavailable
from toolscript.settings import Settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

SHUTDOWN_TIMEOUT_SECONDS = 5


class HttpServer:
    """Takes the port when made. What it serves may come later: until then everyone is told to wait."""

    def __init__(self, settings: Settings) -> None:
        """Raises Unavailable when the port cannot be had."""
        self.served = ServedApp(settings, ready=False)
        self._listening = _listen(settings)
        config = uvicorn.Config(
            create_http_app(self.served),
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # who sends them chooses what they say: a client is where its connection comes from
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_SECONDS,
        )
        self._server = uvicorn.Server(config)
        # Its own handling of signals would end the process before the application is closed.
        self._server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]

    @property
    def url(self) -> str:
        """Where this machine reaches it."""
        host, port = self._listening.getsockname()[:2]
        if ipaddress.ip_address(host).is_unspecified:
            host = "::1" if ":" in host else "127.0.0.1"
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def run(self) -> None:
        """Serves until stopped."""
        with self._listening:
            await self._server.serve(sockets=[self._listening])

    def stop(self) -> None:
        """Ends the serving; requests under way are answered first."""
        self._server.should_exit = True


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends at once only on sockets that say they are TCP; on others the last bytes wait for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise Unavailable(
            f"port {settings.port} on {settings.host} cannot be used ({error.strerror}): choose another with --port, "
            "or 0 for any free one",
            details={"field": "--port"},
        ) from error
    return listening
