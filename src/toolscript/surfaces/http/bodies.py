"""Bodies that a route reads itself: after it knows who is asking, and no more of it than it may be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from toolscript.domain.errors import InvalidArguments
from toolscript.surfaces.http.guard import MAX_BODY_BYTES

# A larger body is read in a thread of its own, so that nobody else waits for it.
LARGE_BODY = 256 * 2**10
# With more mistakes than this, none of them is told: there may be a million.
MAX_REPORTED_ERRORS = 20

Asked = TypeVar("Asked", bound=BaseModel)
Made = TypeVar("Made")


async def whole_body(receive: Receive, largest: int = MAX_BODY_BYTES) -> bytes:
    """The body. Raises InvalidArguments when it is too large, whatever was said of its length, and ClientDisconnect
    when there is no more of it."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > largest:
            raise InvalidArguments(f"the body is larger than {largest // 2**20} MiB", details={"field": "body"})
        if not message.get("more_body", False):
            return bytes(body)


async def read_body(
    request: Request,
    model: type[Asked],
    make: Callable[[Asked], Made],
    largest: int = MAX_BODY_BYTES,
    *,
    required: bool = True,
) -> Made:
    """What is made of the body as that model; unless it is required, none is as good as an empty object. Raises
    InvalidArguments, naming the field by its whole path."""
    body = await whole_body(request.receive, largest)
    if not required and not body.strip():
        body = b"{}"
    if len(body) <= LARGE_BODY:
        return make(_read(body, model))
    return await asyncio.to_thread(lambda: make(_read(body, model)))


def _read(body: bytes, model: type[Asked]) -> Asked:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() > MAX_REPORTED_ERRORS:
            raise InvalidArguments(
                f"the body has {error.error_count()} fields that are wrong or not known: known are "
                f"{', '.join(model.model_fields)}",
                details={"field": "body", "allowed": list(model.model_fields)},
            ) from None
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise InvalidArguments(f"{field}: {first['msg']}", details={"field": field, "problem": first["msg"]}) from error
