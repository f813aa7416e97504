"""Bodies that a route reads itself: after it knows who is asking, and no more of it than it may be."""

from __future__ import annotations

from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from toolscript.domain.errors import InvalidArguments
from toolscript.surfaces.http.guard import LARGEST_BODY

Asked = TypeVar("Asked", bound=BaseModel)


async def whole_body(request: Request) -> bytes:
    """The body. Raises InvalidArguments when it is too large, whatever was said of its length."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise InvalidArguments(f"the body is larger than {LARGEST_BODY // 2**20} MiB", details={"field": "body"})
    return bytes(body)


async def read_body(request: Request, model: type[Asked]) -> Asked:
    """The body as that model. Raises InvalidArguments, naming the field by its whole path."""
    body = await whole_body(request)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise InvalidArguments(f"{field}: {first['msg']}", details={"field": field, "problem": first["msg"]}) from error
