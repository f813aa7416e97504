"""HTTP clients that read no more of an answer than its bound allows. All share the certificates: reading them takes
50 ms of the event loop."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from typing import Any

import httpx2

from toolscript.adapters.outgoing.bounds import MAX_ERROR_BYTES, MAX_REDIRECTS, AnswerSize

EVENT_STREAM = "text/event-stream"
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")


class AnswerTooLarge(httpx2.StreamError):
    """An answer is larger than its bound. What was read of it is dropped, and the connection is closed."""


class BoundedClient(httpx2.AsyncClient):
    """Follows no redirects, and reads nothing of their bodies: the SDK of MCP follows redirects within an origin."""

    def __init__(
        self,
        *,
        max_bytes: int,
        hint: str = "",
        event_methods: Collection[str] = (),
        within: float | None = None,
        **options: Any,
    ) -> None:
        """`max_bytes` bounds the body of an answer, and each event of a stream that answers one of `event_methods`;
        `hint` says what to do about a larger one. `within` bounds the seconds of a request with an answer that is read
        at once."""
        super().__init__(follow_redirects=False, max_redirects=MAX_REDIRECTS, verify=read_certificates(), **options)
        self._max_bytes = max_bytes
        self._hint = hint
        self._event_methods = event_methods
        self._within = within

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Sends the request. Raises AnswerTooLarge while the answer is read, and ReadTimeout."""
        options["follow_redirects"] = False
        try:
            async with asyncio.timeout(self._within):
                response = await self._bound(await super().send(request, stream=True, **options))
                if not stream:
                    await response.aread()
        except TimeoutError:
            raise httpx2.ReadTimeout(f"no complete answer within {self._within:g} s", request=request) from None
        return response

    async def _bound(self, response: httpx2.Response) -> httpx2.Response:
        """The same response, with a body that ends at its bound."""
        headers = response.headers.copy()
        if headers.pop("content-encoding", None):  # the body is decoded where it is counted
            headers.pop("content-length", None)
        if response.next_request is not None:
            await response.aclose()
            body: httpx2.AsyncByteStream = httpx2.ByteStream(b"")
        else:
            bound = self._max_bytes if response.is_success else min(MAX_ERROR_BYTES, self._max_bytes)
            body = _BoundedBody(response, bound, self._hint, is_stream=self._is_stream(response))
        bounded = httpx2.Response(
            response.status_code, headers=headers, stream=body, request=response.request, extensions=response.extensions
        )
        bounded.next_request = response.next_request
        return bounded

    def _is_stream(self, response: httpx2.Response) -> bool:
        return response.is_success and is_event_stream(response) and response.request.method in self._event_methods


class _BoundedBody(httpx2.AsyncByteStream):
    """The decoded body of a response. It is decoded in parts of up to 1 MiB, whatever it expands to. In a stream of
    events, each event has the bound."""

    def __init__(self, response: httpx2.Response, max_bytes: int, hint: str, *, is_stream: bool) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self._hint = hint
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if "," in self._response.headers.get("content-encoding", ""):
            raise self._refuse("the answer is compressed more than once")  # each time, it may expand a thousandfold
        size = AnswerSize()
        async with aclosing(self._response.aiter_bytes()) as parts:
            async for part in parts:
                ends = [found.end() for found in _EVENT_END.finditer(part)] if self._is_stream else []
                if ends:
                    size = AnswerSize()
                size.add(part[ends[-1] :] if ends else part)
                if size.exceeds(self._max_bytes):
                    raise self._refuse(f"the answer is larger than {self._max_bytes / 2**20:g} MiB{self._hint}")
                yield part
                await asyncio.sleep(0)  # a packed answer comes without a pause otherwise

    async def aclose(self) -> None:
        await self._response.aclose()

    def _refuse(self, problem: str) -> Exception:
        return httpx2.SSEError(problem) if self._is_stream else AnswerTooLarge(problem)


def is_event_stream(response: httpx2.Response) -> bool:
    """Whether the body is a stream of events."""
    return response.headers.get("content-type", "").lower().startswith(EVENT_STREAM)


def read_certificates() -> ssl.SSLContext:
    """The trusted certificates: from the environment's variables, or from the system."""
    return _read_certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.cache
def _read_certificates(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()
