"""What the OpenAPI document says beside the models of the routes: errors, bodies that routes read themselves, and the
credentials that a caller must send."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypedDict

from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter

from toolscript.domain.access import Scope
from toolscript.settings import Settings
from toolscript.surfaces.callers import requires_key
from toolscript.surfaces.http.dependencies import get_scope
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json.definitions import More

Responses = dict[int | str, dict[str, Any]]

TOKEN, KEY = "token", "key"
MIN_ERROR_STATUS = 400
_ENVELOPE = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}}
_SCHEMES = {
    TOKEN: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A signed token that names the tenant.",
    },
    KEY: {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "TOOLSCRIPT_API_KEY, or a key of `toolscript keys create` with the scope that the operation "
        "names; required once the gateway has one. `Authorization: Bearer KEY` works too, and so does an access token "
        "where TOOLSCRIPT_OAUTH_RESOURCE is set.",
    },
}
_DESCRIPTIONS = {
    400: "The request is not possible as it is.",
    401: "The credentials are missing or wrong.",
    403: "The caller may not do this, or the Host header is not a name of the gateway.",
    404: "Nothing has this id.",
    409: "It already exists, or was already decided.",
    413: "The body is larger than the limit.",
    422: "A part of the request is missing, too long, out of range or of the wrong type; the error names it.",
    429: "Too many requests; `Retry-After` says when to try again.",
    500: "An internal error of the gateway.",
    502: "A server behind the gateway failed.",
    503: "A store, an index, a model or a server is unavailable.",
    504: "A server behind the gateway did not answer in time.",
}


class ErrorBody(TypedDict):
    """What is wrong."""

    code: Annotated[str, "One word, for programs.", More(examples=["VALIDATION_ERROR"])]
    message: Annotated[str, "What is wrong, where, and what to do next."]
    details: Annotated[dict[str, Any], "The same as fields, for programs.", More(examples=[{"field": "query"}])]


class ErrorEnvelope(TypedDict):
    """The body of every error response."""

    error: ErrorBody


def errors(*statuses: int) -> Responses:
    """Describes the errors with these statuses. Their body is the same everywhere, and `complete_document` adds it: a
    start takes 0.1 s longer when each route has its own model of it."""
    return {status: {"description": _DESCRIPTIONS[status]} for status in statuses}


def request_body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """Describes a body that the route reads itself, for `openapi_extra`."""
    schema = model.model_json_schema()
    inlined = _inline(schema, schema.get("$defs", {}))
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": inlined}}}}


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """Replaces references by what they refer to."""
    if isinstance(schema, list):
        return [_inline(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    rest = {key: _inline(value, definitions) for key, value in schema.items() if key not in {"$ref", "$defs"}}
    if "$ref" not in schema:
        return rest
    return {**_inline(definitions[schema["$ref"].rpartition("/")[2]], definitions), **rest}


def complete_document(document: dict[str, Any], routes: Iterable[APIRoute], settings: Settings) -> None:
    """Adds what each route requires of its callers, that errors are JSON even if the route returns text, and the
    configured defaults of `GET /search`."""
    components = document.setdefault("components", {})
    components["securitySchemes"] = _SCHEMES
    envelope = TypeAdapter(JsonResponse[ErrorEnvelope]).json_schema(
        mode="serialization", ref_template="#/components/schemas/{model}"
    )
    models = components.get("schemas", {}) | envelope.pop("$defs") | {ErrorEnvelope.__name__: envelope}
    components["schemas"] = dict(sorted(models.items()))
    optional: list[dict[str, list[str]]] = [] if requires_key(settings) else [{}]
    document["security"] = [{KEY: []}, *optional]
    for route in (each for each in routes if each.include_in_schema):
        scope = get_scope(route, settings)
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            if scope is None:
                operation["security"] = []
                operation["responses"].pop("401", None)
            elif scope is Scope.DOCUMENTS:
                operation["security"] = [{TOKEN: []}, {KEY: [scope.value]}]
            else:
                operation["security"] = [{KEY: [scope.value]}, *optional]
            if "requestBody" in operation:
                operation["responses"]["413"] = {"description": _DESCRIPTIONS[413]}
                operation["responses"] = dict(sorted(operation["responses"].items()))
            for status, response in operation["responses"].items():
                if int(status) >= MIN_ERROR_STATUS:
                    response["content"] = _ENVELOPE
    defaults = {"limit": settings.search_limit, "threshold": settings.search_threshold}
    for parameter in document["paths"]["/search"]["get"]["parameters"]:
        if parameter["name"] in defaults:
            parameter["schema"]["default"] = defaults[parameter["name"]]
