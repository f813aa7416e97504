"""Refuses query parameters that a route does not have: a mistyped one would be ignored, and a default used instead."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from toolscript.domain.errors import InvalidArguments
from toolscript.domain.spelling import find_meant
from toolscript.surfaces.http.dependencies import JOB_OWNER
from toolscript.surfaces.http.routers.discovery import is_discovery_path


async def check_parameters(request: Request) -> None:
    """Raises InvalidArguments for a query parameter that the route does not have. Other standards define the requests
    of clients that discover the gateway, and of browsers that come back from a login: such requests may have more."""
    route: APIRoute = request.scope["route"]
    if not request.scope["query_string"] or not route.include_in_schema or is_discovery_path(request.scope["path"]):
        return
    if JOB_OWNER in route.dependencies and {"authorization", "x-api-key"}.isdisjoint(request.headers):
        return  # the route itself refuses strangers, and tells them nothing else
    allowed = _list_parameters(route.dependant)
    if unknown := [name for name in request.query_params if name not in allowed]:
        raise build_unknown("parameter", unknown, allowed)


def build_unknown(what: str, names: Sequence[str], allowed: Collection[str]) -> InvalidArguments:
    """Builds the error for parameters or fields with unknown names: it lists the names that were probably meant, and
    all allowed names."""
    meant = [near for near in (find_meant(name, allowed) for name in names) if near]
    question = f"; did you mean {' and '.join(meant)}?" if meant else "."
    known = f"Allowed are {', '.join(allowed)}" if allowed else "This route has none"
    return InvalidArguments(
        f"unknown {what}{'s' if len(names) > 1 else ''}: {', '.join(map(repr, names))}{question} {known}",
        details={"field": names[0], "allowed": list(allowed)},
    )


def _list_parameters(dependant: Dependant) -> list[str]:
    names = [parameter.alias for parameter in dependant.query_params]
    return [*names, *(name for each in dependant.dependencies for name in _list_parameters(each))]
