"""The HTTP client of one MCP server. The SDK goes on reading an answer when its call has ended, and waits without end
for the answer to a notification, with all later messages behind it: this client does neither. It reads results itself,
because the SDK does that on the event loop."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import anyio
import httpx2
from mcp_types import RequestId

from toolscript.adapters.mcp.messages import PendingResults, read_answer, read_events
from toolscript.adapters.outgoing.client import BoundedClient, is_event_stream
from toolscript.domain.limits import current_limits

_ACCEPTED, _ABANDONED = 202, 499
# As the SDK writes them.
_REQUEST = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d{1,18}),"method":')
_CANCELLED = b'{"jsonrpc":"2.0","method":"notifications/cancelled"'

_Result = TypeVar("_Result")


def describe_failure(error: BaseException) -> str:
    """The message of an error; where the library says that its attempts failed, that the connection was refused."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        group = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        cause = group[0] if group else cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


class ServerClient(BoundedClient):
    """Sends the SDK's messages to one server."""

    def __init__(self, results: PendingResults, **options: Any) -> None:
        super().__init__(**options)
        self._results = results
        self._answers: dict[RequestId, _Answer] = {}

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Sends a message. The answer to a request ends when the request is cancelled."""
        if request.method != "POST":
            response = await super().send(request, **options)
            self._read_results(response, None)
            return response
        content = await request.aread()  # of a redirect, it is a stream
        if found := _REQUEST.match(content):
            return await self._send_request(int(found[1]), request, **options)
        try:
            async with asyncio.timeout(current_limits().notification):
                return await super().send(request, **options)
        except TimeoutError:
            return httpx2.Response(_ACCEPTED, request=request)
        finally:
            if content.startswith(_CANCELLED):
                self._end_answer(json.loads(content)["params"]["requestId"])

    async def _send_request(self, number: int, request: httpx2.Request, **options: Any) -> httpx2.Response:
        answer = self._answers[number] = _Answer(lambda: self._answers.pop(number, None))
        try:
            response = await answer.wait(super().send(request, **options))
        except _Ended:
            return httpx2.Response(_ABANDONED, request=request)  # nobody waits for it
        except BaseException:
            answer.forget()
            raise
        self._read_results(response, number)
        answer.replace_body(response)
        return response

    def _read_results(self, response: httpx2.Response, number: RequestId | None) -> None:
        """Lets the SDK have stand-ins for the results in a body that is not read yet."""
        if not response.is_success or response.is_stream_consumed:
            return
        if is_event_stream(response):
            response.stream = _ReadBody(response.stream, lambda parts: read_events(parts, self._results, number))
        elif number is not None and response.headers.get("content-type", "").lower().startswith("application/json"):
            response.stream = _ReadBody(response.stream, lambda parts: read_answer(parts, self._results, number))

    def _end_answer(self, number: RequestId) -> None:
        if answer := self._answers.pop(number, None):
            answer.end()


class _ReadBody(httpx2.AsyncByteStream):
    """A body that is read by a function before it is passed on."""

    def __init__(self, body: Any, read: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]) -> None:
        self._body = body
        self._read = read

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._read(aiter(self._body))

    async def aclose(self) -> None:
        await self._body.aclose()


class _Ended(httpx2.StreamError):
    """The request of an answer was cancelled."""


class _Answer(httpx2.AsyncByteStream):
    """An answer that can be ended by another task: while its head is awaited, and while its body is read."""

    def __init__(self, forget: Callable[[], object]) -> None:
        """`forget` is called when there is nothing more to read."""
        self.forget = forget
        self._body: Any = None
        self._is_stream = self._is_over = False
        self._scope = anyio.CancelScope()

    def end(self) -> None:
        self._is_over = True
        self._scope.cancel()

    async def wait(self, part: Awaitable[_Result]) -> _Result:
        """Waits for a part of the answer. Raises _Ended."""
        with anyio.CancelScope() as self._scope:
            if self._is_over:
                self._scope.cancel()
            return await part
        raise _Ended("its request was cancelled")

    def replace_body(self, response: httpx2.Response) -> None:
        self._is_stream = is_event_stream(response)
        self._body, response.stream = response.stream, self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(aiter(self._body)) as parts:
            while True:
                try:
                    part = await self.wait(anext(parts, None))
                except _Ended as error:
                    if self._is_stream:  # after other errors, the SDK would ask for the rest of the stream
                        raise httpx2.SSEError(str(error)) from None
                    raise
                except httpx2.DecodingError as error:  # the SDK would close the connection, with all other calls
                    raise httpx2.StreamError(f"it cannot be decompressed: {error}") from error
                if part is None:
                    return
                yield part

    async def aclose(self) -> None:
        self.forget()
        await self._body.aclose()
