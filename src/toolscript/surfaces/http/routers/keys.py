"""Named keys: create, list and revoke them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field

from toolscript.app.app import App
from toolscript.domain.access import OPERATOR, Scope
from toolscript.domain.errors import Forbidden
from toolscript.surfaces.callers import OWNER_NAME, is_data_owner
from toolscript.surfaces.http.bodies import RequestModel, read_json
from toolscript.surfaces.http.dependencies import ADMIN, CurrentApp, require_administrator
from toolscript.surfaces.http.openapi import errors, request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import access as responses


class CreateKeyRequest(RequestModel):
    """A key to create."""

    name: str = Field(min_length=1, max_length=64, description="Logs show it.", examples=["ci"])
    scopes: list[Scope] = Field(min_length=1, max_length=len(Scope), description="What the key allows.")
    expires_in_seconds: float | None = Field(
        default=None, ge=60, le=3650 * 86_400, description="When the key expires, from now on. Default: never."
    )
    tenant: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Whose documents the key is for, with the scope `documents`. Default: TOOLSCRIPT_TENANT.",
    )


router = APIRouter(prefix="/api/v1/keys", tags=["access"], dependencies=[ADMIN, Depends(require_administrator)])

KeyName = Annotated[str, Path(max_length=64, description="The key's name.", examples=["ci"])]


@router.get("", summary="List all keys, without their secrets")
async def list_keys(app: CurrentApp) -> JsonResponse[responses.KeysResponse]:
    return JsonResponse(responses.build_keys_response(await app.access.keys.list_all()))


@router.post(
    "",
    summary="Create a key: only this response has its secret",
    description="The owner's token is needed (`toolscript open`), TOOLSCRIPT_API_KEY, or a key with the scope `admin`, "
    "which can give no scope that it lacks, and not `documents`.",
    responses=errors(400, 409),
    openapi_extra=request_body(CreateKeyRequest),
)
async def create_key(request: Request, app: CurrentApp) -> JsonResponse[responses.CreatedKeyResponse]:
    body = await read_json(request, CreateKeyRequest, lambda each: each)
    _require_scopes(app, request, body.scopes)
    key, secret = await app.access.keys.create(
        body.name, body.scopes, tenant=body.tenant or app.settings.tenant, expires_in=body.expires_in_seconds
    )
    return JsonResponse({**responses.build_key_response(key), "key": secret})


@router.post(
    "/{name}/revoke", summary="Make a key invalid for good, on every gateway within seconds", responses=errors(404)
)
async def revoke_key(name: KeyName, app: CurrentApp) -> JsonResponse[responses.KeyResponse]:
    return JsonResponse(responses.build_key_response(await app.access.keys.revoke(name)))


def _require_scopes(app: App, request: Request, scopes: list[Scope]) -> None:
    """Raises Forbidden for scopes that the caller cannot give. The owner and the operator give all."""
    grant = request.scope["grant"]
    if grant.caller in {OPERATOR, OWNER_NAME} or is_data_owner(app, request.headers):
        return
    missing = sorted({*scopes} - (grant.scopes - {Scope.DOCUMENTS}))
    if missing:
        raise Forbidden(
            f"this key or token cannot create a key with {', '.join(missing)}: it gives the scopes that it has itself, "
            "and documents, which belong to a tenant, are for the owner to give: `toolscript keys create`",
            details={"scopes": missing},
        )
