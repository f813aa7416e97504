"""Dependencies of the routes: the application, the caller, and the caller's rate limit.

They also declare who may call a route, once: one of the constants at the end, in `dependencies=` of a router or route.
The guard and the OpenAPI document read the declaration with `get_scope`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from fastapi.routing import APIRoute

from toolscript.app.app import App
from toolscript.domain import access
from toolscript.domain.access import Plan, Principal, Scope
from toolscript.domain.errors import Forbidden, InvalidArguments, Unavailable
from toolscript.domain.files.jobs import Job, JobTarget
from toolscript.domain.requests import current_request, set_request
from toolscript.services.ingest.jobs import find_target
from toolscript.settings import Settings
from toolscript.surfaces.callers import (
    admit_client,
    build_unauthorized,
    find_grant,
    identify_caller,
    identify_principal,
    is_data_owner,
    require_scope,
)
from toolscript.surfaces.http.errors import KnowledgeUnavailable
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.owner import is_of_this_machine


async def get_served_app(request: Request) -> ServedApp:
    """Returns what the server serves. It may still be opening."""
    served: ServedApp = request.app.state.served
    return served


Served = Annotated[ServedApp, Depends(get_served_app)]


async def get_app(request: Request) -> App:
    """Returns the application. Raises Unavailable while it is being opened."""
    served: ServedApp = request.app.state.served  # as a dependency of this one it would take 0.05 ms
    return served.app


CurrentApp = Annotated[App, Depends(get_app)]


async def allow_everyone() -> None:
    """Declares a route that needs no credentials."""


async def allow_job_owner() -> None:
    """Declares a route about ingest jobs."""


@dataclass(frozen=True, slots=True)
class AllowScope:
    """Declares a route for keys with a scope. The guard has checked it before the route reads anything."""

    scope: Scope

    async def __call__(self) -> None: ...


async def get_principal(request: Request, app: CurrentApp) -> Principal:
    """Returns the principal of the request's token. Raises Unauthorized."""
    if len(request.headers.getlist("authorization")) > 1:
        raise build_unauthorized("the request has several Authorization headers: send one")
    return await identify_principal(app, request.headers, is_owner=request.scope["is_owner"])


Caller = Annotated[Principal, Depends(get_principal)]


def get_caller(request: Request) -> access.Caller:
    """Returns the caller of this request, on routes where the guard has checked the key."""
    return identify_caller(request.scope["grant"], request.client.host if request.client else None)


async def require_known_caller(request: Request, served: Served) -> None:
    """Checks who changes what runs on this machine. Where nobody needs a key, that is only for programs and pages of
    this machine: not for what comes through a proxy on this machine, nor for pages of other origins that may search.
    Raises Forbidden."""
    if request.scope["grant"].caller is not None:
        return
    if not is_of_this_machine(served.settings, request.headers, request.client):
        raise Forbidden(
            "this gateway asks its own machine for no key, and only that may add servers: their commands run there. "
            "Set TOOLSCRIPT_API_KEY, or create a key with `toolscript keys create NAME --scope admin`, and send it",
            details={"field": "Authorization"},
        )


async def require_administrator(request: Request, app: CurrentApp) -> None:
    """Checks who decides about calls, keys and overrides: the owner of the data folder, or a caller with a key. On
    loopback a request without credentials may be an agent's. Raises Forbidden."""
    if request.scope["grant"].caller is None and not is_data_owner(app, request.headers):
        raise Forbidden(
            "approvals, keys and overrides are for the owner, who is signed in, and for keys with the scope admin: "
            "open this page with `toolscript open`, or use `toolscript approvals` and `toolscript keys`",
            details={"field": "Authorization"},
        )


async def admit_tenant(app: CurrentApp, caller: Caller) -> Plan:
    """Counts the request and returns the tenant's plan. Raises RateLimited."""
    return await app.access.plans.admit(caller)


async def admit_search(app: CurrentApp, caller: Caller) -> Plan:
    """Counts the document search and returns the tenant's plan. Raises RateLimited."""
    return await app.texts.document_search.admit(caller)


@dataclass(frozen=True, slots=True)
class JobOwner:
    """The owner of the jobs that a request is about: a tenant with documents, or knowledge."""

    target: JobTarget
    tenant: str
    is_data_owner: bool


async def identify_job_owner(request: Request, app: App, target: JobTarget) -> JobOwner:
    """Returns the owner of the jobs that a request is about: documents need the token or key of a tenant, knowledge the
    scope `admin`. Raises Unauthorized, Forbidden and RateLimited."""
    tenant = ""
    if target is JobTarget.DOCUMENTS:
        principal = await get_principal(request, app)
        await app.access.plans.admit(principal)
        tenant = principal.tenant
    else:
        grant = await find_grant(app.settings, app, request.headers, is_owner=request.scope["is_owner"])
        set_request(replace(current_request(), caller_name=grant.caller))
        require_scope(Scope.ADMIN, grant)
    return JobOwner(target, tenant, is_data_owner(app, request.headers))


async def get_job_owner(
    request: Request,
    app: CurrentApp,
    target: Annotated[
        str,
        Query(
            alias="as",
            description="What the files become: a tenant's documents, or knowledge.",
            json_schema_extra={"enum": [target.value for target in JobTarget]},
        ),
    ] = JobTarget.DOCUMENTS.value,
) -> JobOwner:
    """Returns the owner of the jobs that a request without a job's id is about. Strangers learn nothing about what is
    allowed, so the value is checked after the credentials. Raises InvalidArguments."""
    is_known = target in set(JobTarget)
    owner = await identify_job_owner(request, app, JobTarget(target) if is_known else JobTarget.DOCUMENTS)
    if not is_known:
        raise InvalidArguments(
            f"as: expected {' or '.join(JobTarget)}", details={"field": "as", "allowed": list(JobTarget)}
        )
    return owner


async def get_job(request: Request, app: CurrentApp, job_id: Annotated[str, Path(description="The job's id.")]) -> Job:
    """Returns the job that a request is about. Raises NotFound."""
    owner = await identify_job_owner(request, app, find_target(job_id))
    return await app.texts.jobs.get(job_id, owner.target, owner.tenant)


ADMIT_TENANT = Depends(admit_tenant)
AdmittedPlan = Annotated[Plan, Depends(admit_tenant)]
AdmittedSearchPlan = Annotated[Plan, Depends(admit_search)]


async def admit_knowledge_client(request: Request, served: Served) -> None:
    """Counts the knowledge search of the client. Raises RateLimited and KnowledgeUnavailable."""
    try:
        app = served.app
    except Unavailable as error:
        raise KnowledgeUnavailable(error.message, details=error.details) from error
    await admit_client(app, request.headers, request.client.host if request.client else None)


# Who may call a route: callers whose key has a scope; a tenant's token is as good as the scope `documents`, and
# TOOLSCRIPT_KNOWLEDGE_PUBLIC opens knowledge to callers without a key.
SEARCH, CALL, METRICS, ADMIN = (
    Depends(AllowScope(scope)) for scope in (Scope.SEARCH, Scope.CALL, Scope.METRICS, Scope.ADMIN)
)
TENANT = Depends(get_principal)
# Jobs of documents need a tenant's token or key, those of knowledge the scope `admin`: the routes check it themselves.
JOB_OWNER = Depends(allow_job_owner)
KNOWLEDGE_CLIENT = Depends(admit_knowledge_client)
PUBLIC = Depends(allow_everyone)
_SCOPES = {
    SEARCH: Scope.SEARCH,
    CALL: Scope.CALL,
    METRICS: Scope.METRICS,
    ADMIN: Scope.ADMIN,
    TENANT: Scope.DOCUMENTS,
    JOB_OWNER: Scope.DOCUMENTS,
    KNOWLEDGE_CLIENT: Scope.KNOWLEDGE,
    PUBLIC: None,
}


def get_scope(route: APIRoute, settings: Settings) -> Scope | None:
    """Returns the scope that a route needs; None if everyone may call it. What a route declares overrides what its
    router declares. Raises LookupError for a route without a declaration."""
    declared = [_SCOPES[each] for each in route.dependencies if each in _SCOPES]
    if not declared:
        raise LookupError(f"{route.path} does not declare who may call it")
    is_public = declared[-1] is Scope.KNOWLEDGE and settings.knowledge_public
    return None if is_public else declared[-1]
