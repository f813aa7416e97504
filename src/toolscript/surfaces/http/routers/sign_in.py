"""Signs the page in that `toolscript open` has opened for the owner of the data folder."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import Field

from toolscript.app.access import SESSION_SECONDS
from toolscript.surfaces.http.bodies import RequestModel, read_json
from toolscript.surfaces.http.dependencies import PUBLIC, CurrentApp
from toolscript.surfaces.http.openapi import request_body
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json.access import SignInResponse


class SignInRequest(RequestModel):
    """The code of a link of `toolscript open`."""

    code: str = Field(min_length=1, max_length=4096, description="The code in the link; it counts once.")


MAX_BYTES = 16_384

router = APIRouter(tags=["access"], dependencies=[PUBLIC])


@router.post(
    "/api/v1/sign-in",
    summary="Sign in the page that `toolscript open` has opened",
    description="The code of the link counts once, within five minutes; who can read the data folder can make one.",
    openapi_extra=request_body(SignInRequest),
)
async def sign_in(request: Request, app: CurrentApp) -> JsonResponse[SignInResponse]:
    code = await read_json(request, SignInRequest, lambda body: body.code, MAX_BYTES)
    return JsonResponse({"token": app.access.sign_ins.redeem(code), "seconds": SESSION_SECONDS})
