"""Dependencies of the routes: the application, the caller, and the caller's rate limit.

They also declare who may call a route, once: `TENANT`, `KNOWLEDGE_CLIENT` or `PUBLIC` in `dependencies=` of a router or
a route. A route without one of them requires the gateway's key. The guard and the OpenAPI document read the declaration
with `access_of`.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from toolscript.app.app import App
from toolscript.domain.access import Plan, Principal
from toolscript.domain.errors import Unavailable
from toolscript.surfaces.callers import admit_client, build_unauthorized, identify_principal
from toolscript.surfaces.http.errors import KnowledgeUnavailable
from toolscript.surfaces.http.served_app import ServedApp


class Access(Enum):
    """What a caller must send."""

    KEY = "the gateway's key, if it has one"
    TOKEN = "a tenant's bearer token"  # noqa: S105
    NOTHING = "nothing"


async def get_served_app(request: Request) -> ServedApp:
    """Returns what the server serves, which may still be opening."""
    served: ServedApp = request.app.state.served
    return served


Served = Annotated[ServedApp, Depends(get_served_app)]


async def get_app(served: Served) -> App:
    """Returns the application. Raises Unavailable while it is being opened."""
    return served.app


CurrentApp = Annotated[App, Depends(get_app)]


async def allow_everyone() -> None:
    """Declares a route that needs no credentials."""


async def get_principal(request: Request, app: CurrentApp) -> Principal:
    """Returns the principal of the request's token. Raises Unauthorized."""
    if len(request.headers.getlist("authorization")) > 1:
        raise build_unauthorized("the request has several Authorization headers: send one")
    return await identify_principal(app, request.headers)


Caller = Annotated[Principal, Depends(get_principal)]


async def admit_tenant(app: CurrentApp, caller: Caller) -> Plan:
    """Counts the request and returns the tenant's plan. Raises RateLimited."""
    return app.plans.admit(caller)


async def admit_search(app: CurrentApp, caller: Caller) -> Plan:
    """Counts the document search and returns the tenant's plan. Raises RateLimited."""
    return app.document_search.admit(caller)


ADMIT_TENANT = Depends(admit_tenant)
AdmittedPlan = Annotated[Plan, Depends(admit_tenant)]
AdmittedSearchPlan = Annotated[Plan, Depends(admit_search)]


async def admit_knowledge_client(request: Request, served: Served) -> None:
    """Counts the knowledge search of the client. Raises RateLimited and KnowledgeUnavailable."""
    try:
        app = served.app
    except Unavailable as error:
        raise KnowledgeUnavailable(error.message, details=error.details) from error
    admit_client(app, request.headers, request.client.host if request.client else None)


TENANT = Depends(get_principal)
KNOWLEDGE_CLIENT = Depends(admit_knowledge_client)
PUBLIC = Depends(allow_everyone)


def access_of(route: APIRoute) -> Access:
    """Returns what a caller of the route must send."""
    if TENANT in route.dependencies:
        return Access.TOKEN
    return Access.NOTHING if {KNOWLEDGE_CLIENT, PUBLIC} & {*route.dependencies} else Access.KEY
