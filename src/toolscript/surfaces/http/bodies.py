"""Request bodies that a route reads itself: after the caller is known, and up to a limit; and work that ends when the
caller disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import ClientDisconnect

from toolscript.domain.errors import InvalidArguments
from toolscript.surfaces.http.input_limits import MAX_BODY_BYTES, build_too_large
from toolscript.surfaces.http.parameters import build_unknown

ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"


class RequestModel(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")


class StrictRequestModel(RequestModel):
    """The body of a request whose values must have the right type already: "5" is no number."""

    model_config = ConfigDict(strict=True)


# A larger body is parsed in a thread, so that other requests do not wait for it.
THREAD_BODY_BYTES = 256 * 2**10
# A body may have a million errors; with more than this, the message only lists the allowed fields.
MAX_REPORTED_ERRORS = 20
UNKNOWN_FIELD = "extra_forbidden"

Model = TypeVar("Model", bound=BaseModel)
Converted = TypeVar("Converted")


async def read_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Returns the body. Raises TooLarge once more than `max_bytes` were received, whatever Content-Length says, and
    ClientDisconnect if the client goes away."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise build_too_large("body", max_bytes)
    return bytes(body)


async def run_while_connected(request: Request, work: Coroutine[Any, Any, Converted]) -> Converted:
    """Returns what the work returns, after the body was read. When the client disconnects, cancels the work and raises
    ClientDisconnect."""
    running, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({running, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientDisconnect
        return running.result()
    finally:
        running.cancel()
        leaving.cancel()
        await asyncio.gather(running, leaving, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def read_json(
    request: Request,
    model: type[Model],
    convert: Callable[[Model], Converted],
    max_bytes: int = MAX_BODY_BYTES,
    *,
    required: bool = True,
) -> Converted:
    """Parses the body as the model and converts it; unless it is required, an empty body is an empty object. Raises
    InvalidArguments with the full path of the wrong field."""
    body = await read_body(request, max_bytes)
    if not required and not body.strip():
        body = b"{}"
    if len(body) <= THREAD_BODY_BYTES:
        return convert(_parse(body, model))
    return await asyncio.to_thread(lambda: convert(_parse(body, model)))


def _parse(body: bytes, model: type[Model]) -> Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() > MAX_REPORTED_ERRORS:
            raise InvalidArguments(
                f"the body has {error.error_count()} unknown or invalid fields: allowed are "
                f"{', '.join(model.model_fields)}",
                details={"field": "body", "allowed": list(model.model_fields)},
            ) from None
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        unknown = [each["loc"] for each in problems if each["type"] == UNKNOWN_FIELD and len(each["loc"]) == 1]
        if unknown:  # before those that are missing: one of them was probably meant
            raise build_unknown("field", [str(name) for (name,) in unknown], list(model.model_fields)) from error
        first = problems[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise InvalidArguments(f"{field}: {first['msg']}", details={"field": field, "problem": first["msg"]}) from error
