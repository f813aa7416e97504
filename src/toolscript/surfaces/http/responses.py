"""JSON responses of the routes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from types import UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema, to_json
from starlette.responses import Response

from toolscript.surfaces.json.definitions import More

Content = TypeVar("Content")


class JsonResponse(Response, Generic[Content]):
    """A response that a route built itself with `surfaces/json`.

    A route returns `JsonResponse[X]`: mypy checks that it built an X, and FastAPI describes X in the OpenAPI document.
    FastAPI does not validate a response that is a `Response` already. Validating our own output again would cost more
    than writing it, and `tests/e2e/test_openapi.py` checks that both agree. NaN and infinity become null.
    """

    media_type = "application/json"

    def __init__(self, content: Content, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, headers)

    def render(self, content: Any) -> bytes:
        """Writes the content as JSON."""
        return to_json(content, inf_nan_mode="null")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(_replace_definitions(get_args(source)[0]))


def _replace_definitions(hint: Any) -> Any:
    """The type with a model for each TypedDict in it: pydantic takes those of the standard library from Python 3.12."""
    if is_typeddict(hint):
        return _create_model(hint)
    arguments = tuple(map(_replace_definitions, get_args(hint)))
    match get_origin(hint):
        case None:
            return hint
        case origin if origin in {Union, UnionType}:
            return functools.reduce(operator.or_, arguments)
        case origin if origin is Annotated:
            schema: dict[str, Any] = {}
            for note in hint.__metadata__:
                schema |= note.schema if isinstance(note, More) else {"description": note}
            return Annotated[arguments[0], Field(json_schema_extra=schema)]
        case origin:
            return origin[arguments]


@functools.cache
def _create_model(definition: Any) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(definition, include_extras=True).items():
        is_optional = get_origin(hint) is NotRequired
        kind = get_args(hint)[0] if is_optional else hint
        fields[name] = (_replace_definitions(kind), None if is_optional else ...)
    config = ConfigDict(extra="forbid")
    return create_model(definition.__name__, __config__=config, __doc__=definition.__doc__, **fields)
