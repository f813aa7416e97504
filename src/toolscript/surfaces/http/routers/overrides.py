"""Overrides of tools over HTTP: what the configuration changes of a tool, read and written by its owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Path
from pydantic import Field

from toolscript.app.app import App
from toolscript.configuration.override_edit import read_override, write_override
from toolscript.configuration.snippets import ConfigurationPlace
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.requests import current_request
from toolscript.domain.spelling import suggest
from toolscript.domain.tool_overrides import list_arguments
from toolscript.surfaces.http.bodies import RequestModel
from toolscript.surfaces.http.dependencies import ADMIN, Served, require_administrator
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.http.served_app import ServedApp
from toolscript.surfaces.json.definitions import TOOL_ID
from toolscript.surfaces.json.overrides import OverrideResponse, build_override_response

EXAMPLE = {"name": "new_ticket", "arguments": {"repo": {"default": "acme/app", "hidden": True}}}


class OverrideRequest(RequestModel):
    """What the configuration is to change of a tool."""

    override: dict[str, Any] = Field(
        description="`name`, `description`, `hidden` and `arguments`, as in the configuration file; empty: nothing.",
        examples=[EXAMPLE],
    )


log = logging.getLogger(__name__)

# Who may lift what keeps agents from an argument is a person: on loopback a request without credentials may be theirs.
router = APIRouter(prefix="/api/v1/overrides", tags=["servers"], dependencies=[ADMIN, Depends(require_administrator)])

ToolId = Annotated[str, Path(description=TOOL_ID, examples=["github__create_issue"])]


@router.get(
    "/{tool_id:path}",
    summary="What the configuration changes of a tool",
    description="A hidden tool is named by its server's name for it.",
    responses=errors(400, 404),
)
async def get_override(tool_id: ToolId, served: Served) -> JsonResponse[OverrideResponse]:
    tool = await _find_tool(served.app, tool_id)
    written = await asyncio.to_thread(read_override, _find_place(served), tool.server, tool.name)
    return JsonResponse(build_override_response(tool.server, tool.name, written, tool.arguments))


@router.put(
    "/{tool_id:path}",
    summary="Change a tool's name, description and arguments in the configuration file",
    description="Replaces the tool's override in the entry of its server. What else the file has stays as it is. The "
    "gateway notices the change within a second, and connects the server again.",
    responses=errors(400, 404, 409),
)
async def put_override(tool_id: ToolId, served: Served, body: OverrideRequest) -> JsonResponse[OverrideResponse]:
    app, place = served.app, _find_place(served)
    tool = await _find_tool(app, tool_id)
    await _check(app, tool, body.override)
    with app.servers.changes.record("override", tool.server, tool.name):
        written = await asyncio.to_thread(write_override, place, tool.server, tool.name, body.override)
    log.info("override_written", extra={"tool": tool_id, "caller": current_request().caller})
    return JsonResponse(build_override_response(tool.server, tool.name, written, tool.arguments))


class _ChosenTool(NamedTuple):
    server: str
    name: str
    """As its server names it."""
    arguments: list[str]


async def _find_tool(app: App, tool_id: str) -> _ChosenTool:
    """Raises NotFound, also for a tool that the caller may not see."""
    server, _, name = tool_id.partition("__")
    spec = app.servers.gateway.find_spec(server)
    override = spec.tools.get(name) if spec else None
    shows = app.catalogue.visibility.shows
    # Hidden tools are not in the catalogue, so `describe` would not find them.
    if override and override.hidden and await shows(Item(server, override.name or name), current_request()):
        return _ChosenTool(server, name, [*override.arguments])
    item = await app.tools.call.describe(tool_id)
    if item.type is not ItemType.TOOL:
        raise NotFound(f"{tool_id} is not a tool: only tools have overrides", details={"tool": tool_id})
    known = spec.tools.get(item.listed_name) if spec else None
    hidden = [argument for argument, each in known.arguments.items() if each.hidden] if known else []
    shown = list_arguments(item.input_schema or {})
    return _ChosenTool(item.server, item.listed_name, [*dict.fromkeys((*shown, *hidden))])


async def _check(app: App, tool: _ChosenTool, override: Mapping[str, Any]) -> None:
    """Raises Invalid for what the configuration may have, and the catalogue contradicts."""
    arguments = override.get("arguments")
    for name in arguments if isinstance(arguments, Mapping) and tool.arguments else ():
        if name not in tool.arguments:
            raise Invalid(
                f"arguments.{name}: the tool has no such argument{suggest(name, tool.arguments)}",
                details={"field": f"arguments.{name}", "allowed": tool.arguments},
            )
    new_id = f"{tool.server}__{override.get('name') or tool.name}"
    for stored in await app.stores.items.get_items([new_id], active_only=False):
        if stored.item.listed_name != tool.name:
            raise Invalid(
                f"name: {new_id} is, or was, the server's tool {stored.item.listed_name!r}: choose another name",
                details={"field": "name"},
            )


def _find_place(served: ServedApp) -> ConfigurationPlace:
    if served.place is None:
        raise Unavailable("this gateway has no configuration file that could be changed")
    return served.place
