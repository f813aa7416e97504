"""What routes say of themselves in the OpenAPI document: every status they answer, the one shape of all errors, and
what a caller must bring."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from toolscript.surfaces.http.request_tracking import TrackedApi

Responses = dict[int | str, dict[str, Any]]

TOKEN, KEY = "token", "key"
NEEDS_TOKEN: dict[str, Any] = {"security": [{TOKEN: []}]}
NEEDS_NOTHING: dict[str, Any] = {"security": []}

FIRST_ERROR = 400
_ENVELOPE = "#/components/schemas/ErrorEnvelope"
_SCHEMES = {
    TOKEN: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A signed token that names the tenant whose documents are meant.",
    },
    KEY: {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "The gateway's key, where it has one. `Authorization: Bearer KEY` does as well.",
    },
}
_MEANINGS = {
    400: "What was asked cannot be used as it is.",
    401: "Who is asking could not be established.",
    403: "The caller may not do this, or called the gateway by a name that is not its own.",
    404: "There is nothing of that name.",
    409: "It is there or decided already.",
    422: "A part of the request is missing, of the wrong type, out of range or too large; the error names it.",
    429: "Asked too often; `Retry-After` tells when to ask again.",
    500: "A fault of the gateway's own.",
    502: "A server behind the gateway failed.",
    503: "Something that is needed (a store, an index, a model, a server) cannot be used right now.",
    504: "A server behind the gateway took too long.",
}


class ErrorBody(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(description="One word for programs.", examples=["VALIDATION_ERROR"])
    message: str = Field(description="What was wrong, where, and what to do next.")
    details: dict[str, Any] = Field(description="The same in parts, for programs.", examples=[{"field": "query"}])


class ErrorEnvelope(BaseModel):
    """The shape of every error."""

    model_config = ConfigDict(extra="forbid")

    error: ErrorBody


def errors(*statuses: int) -> Responses:
    """The errors that a route may answer with these statuses."""
    return {status: {"model": ErrorEnvelope, "description": _MEANINGS[status]} for status in statuses}


# Host, key, body and the application itself are looked at before any route is asked.
EVERYWHERE = errors(401, 403, 422, 500, 503)


def body_of(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """The description of a body that a route reads itself."""
    schema = schema_of(model)
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model, whole: nothing in it refers to anything outside."""
    told = model.model_json_schema()
    whole: dict[str, Any] = _whole(told, told.get("$defs", {}))
    return whole


def _whole(told: Any, parts: dict[str, Any]) -> Any:
    if isinstance(told, list):
        return [_whole(each, parts) for each in told]
    if not isinstance(told, dict):
        return told
    beside = {key: _whole(value, parts) for key, value in told.items() if key not in {"$ref", "$defs"}}
    return {**_whole(parts[told["$ref"].rpartition("/")[2]], parts), **beside} if "$ref" in told else beside


class DescribedHttp(TrackedApi):
    """An application whose OpenAPI document says what callers must bring, and that errors are JSON whatever the route
    answers otherwise. Where they need bring nothing, nobody is asked who they are."""

    asks_for_key = False

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            told = super().openapi()
            told.setdefault("components", {})["securitySchemes"] = _SCHEMES
            told["security"] = [{KEY: []}] if self.asks_for_key else [{KEY: []}, {}]
            for route in (route for methods in told["paths"].values() for route in methods.values()):
                if route.get("security") == NEEDS_NOTHING["security"]:
                    route["responses"].pop("401", None)
                for status, answer in route["responses"].items():
                    if int(status) >= FIRST_ERROR:
                        answer["content"] = {"application/json": {"schema": {"$ref": _ENVELOPE}}}
        return self.openapi_schema or {}
