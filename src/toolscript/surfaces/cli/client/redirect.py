"""The user's browser during a login: opens an address in it, and receives the address that it is sent back to, on a
loopback port or pasted into the terminal."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from toolscript.domain.errors import TimedOut, Unavailable
from toolscript.surfaces.cli.terminal.text import print_note

HOST, PATH = "127.0.0.1", "/callback"
MAX_REQUEST_BYTES = 65536
REQUEST_SECONDS = 10.0
_PAGE = b"<!doctype html><title>Toolscript</title><p>Toolscript has the answer. You can close this page.</p>"
_NOTHING = b"<!doctype html><title>Toolscript</title><p>This address does not belong to the login.</p>"


class RedirectReceiver:
    """Receives one redirect. Requests that do not belong to the login are refused, and it goes on waiting."""

    def __init__(self, port: int, *, opens_browser: bool, timeout: float) -> None:
        self.redirect_uri = f"http://{HOST}:{port}{PATH}"
        self._opens_browser = opens_browser
        self._timeout = timeout
        self._state = ""
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def visit(self, url: str) -> str:
        """Opens the URL in a browser, or prints it; returns the address that the browser was sent back to. Raises
        TimedOut."""
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        opened = self._opens_browser and has_display() and await asyncio.to_thread(webbrowser.open, url)
        print_note(f"{'your browser opens' if opened else 'open this address in a browser'}: {url}", label="login:")
        if not opened:
            print_note(
                f"if the browser cannot reach {self.redirect_uri} then, paste the address that it shows here",
                label="login:",
            )
        try:
            with _watch_input(self._take_pasted):
                async with asyncio.timeout(self._timeout):
                    return await self._address
        except TimeoutError:
            raise TimedOut(f"nobody logged in within {self._timeout:g} s: run the command again") from None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers a request to the loopback port."""
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.decode("ascii").split(" ", 2)
                address = self.redirect_uri.removesuffix(PATH) + target
                is_ours = method == "GET" and self._is_ours(address)
                body = _PAGE if is_ours else _NOTHING
                writer.write(
                    f"HTTP/1.1 {'200 OK' if is_ours else '404 Not Found'}\r\nContent-Type: text/html\r\n"
                    f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
                    "Connection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
                if is_ours:
                    self._take(address)
        writer.close()

    def _take_pasted(self, line: str) -> None:
        if self._is_ours(line.strip()):
            self._take(line.strip())
        elif line.strip():
            print_note(f"this is not an address of this login: it begins with {self.redirect_uri}?", label="login:")

    def _take(self, address: str) -> None:
        if not self._address.done():
            self._address.set_result(address)

    def _is_ours(self, address: str) -> bool:
        parts = urlsplit(address)
        state = parse_qs(parts.query).get("state", [""])[0]
        return (
            address.startswith(f"{self.redirect_uri}?")
            and bool(self._state)
            and secrets.compare_digest(state.encode(), self._state.encode())
        )


@asynccontextmanager
async def receive_redirect(port: int, *, opens_browser: bool, timeout: float) -> AsyncIterator[RedirectReceiver]:  # noqa: ASYNC109
    """Listens on a loopback port; 0 picks a free one. Raises Unavailable when the port is in use."""
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise Unavailable(
            f"port {port} cannot be opened for the login: {error.strerror}. Choose another with --port"
        ) from error
    receiver = RedirectReceiver(listening.getsockname()[1], opens_browser=opens_browser, timeout=timeout)
    server = await asyncio.start_server(receiver.answer, sock=listening, limit=MAX_REQUEST_BYTES)
    try:
        yield receiver
    finally:
        server.close()


def has_display() -> bool:
    """Whether a browser with windows can be opened; one in the terminal would hide what is printed there."""
    if sys.platform in {"darwin", "win32"}:
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


@contextmanager
def _watch_input(take: Callable[[str], None]) -> Iterator[None]:
    """Calls `take` with every line of standard input while the block lasts. Without input, or with a file as input,
    nobody can paste anything."""
    loop, pending = asyncio.get_running_loop(), b""

    def read() -> None:
        nonlocal pending
        part = os.read(sys.stdin.fileno(), MAX_REQUEST_BYTES)
        if not part:
            loop.remove_reader(sys.stdin.fileno())
        *lines, pending = (pending + part).split(b"\n")
        for line in lines:
            take(line.decode(errors="replace"))

    number = None
    # Without an input, from a file, or on Windows, whose loop reads none, nothing is pasted: the redirect still works.
    with suppress(OSError, ValueError, NotImplementedError):
        descriptor = sys.stdin.fileno()
        loop.add_reader(descriptor, read)
        number = descriptor
    try:
        yield
    finally:
        if number is not None:
            loop.remove_reader(number)
