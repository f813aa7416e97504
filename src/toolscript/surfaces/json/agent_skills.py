"""A file of an agent skill as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from toolscript.domain.agent_skills import MAIN_FILE, MAX_LISTED, list_files
from toolscript.domain.catalog import ItemType
from toolscript.domain.errors import NotFound, UpstreamFailed
from toolscript.domain.native_names import wrap_uri
from toolscript.domain.requests import current_request
from toolscript.domain.servers import NO_RELAY, CallRelay
from toolscript.services.tools.named_tools import find_named_tools

if TYPE_CHECKING:
    from toolscript.app.app import App


class AgentSkillResponse(TypedDict):
    """A file of an agent skill: a folder with a `SKILL.md`."""

    agentSkillId: str
    serverName: str
    name: str
    description: str
    path: Annotated[str, "The file, relative to the folder."]
    uri: Annotated[str, "Its address for MCP's `resources/read`."]
    text: NotRequired[Annotated[str, "Left out for a binary file."]]
    blob: NotRequired[Annotated[str, "The content of a binary file, in base64. Otherwise left out."]]
    files: Annotated[list[str], "The paths of all its files."]
    connectedTools: Annotated[list[str], "Ids of tools that it names and that can be called."]
    missingTools: Annotated[list[str], "Names of tools that it names and that are not connected."]


async def read_agent_skill(
    app: App, agent_skill_id: str, path: str, *, relay: CallRelay = NO_RELAY
) -> AgentSkillResponse:
    """Reads a file of an agent skill the way that calls of tools take. Raises what they raise, and NotFound for an id
    of something else."""
    item = await app.tools.call.describe(agent_skill_id)
    if item.type is not ItemType.AGENT_SKILL:
        raise NotFound(f"{item.id} is a {item.type}, not an agent skill", details={"tool": item.id})
    result = await app.tools.call.call(item.id, {"path": path}, relay=relay)
    content: dict[str, Any] = ((result.structured or {}).get("contents") or [{}])[0]
    if not {"text", "blob"} & content.keys():
        raise UpstreamFailed(f"{item.id}: the server sent no file", details={"server": item.server})
    facts = (await app.catalogue.snapshots.current().facts()).items
    view = await app.catalogue.visibility.find_view(current_request())
    tools = [i for i, each in facts.items() if each.type is ItemType.TOOL and not each.quarantine and view.shows(i)]
    named = find_named_tools(item, tools)
    response: AgentSkillResponse = {
        "agentSkillId": item.id,
        "serverName": item.server,
        "name": item.name,
        "description": item.description,
        "path": path,
        "uri": wrap_uri(item.server, str(content.get("uri"))),
        "files": sorted(list_files(item)),
        "connectedTools": named.connected,
        "missingTools": named.missing,
    }
    if "text" in content:
        response["text"] = str(content["text"])
    else:
        response["blob"] = str(content["blob"])
    return response


def describe_agent_skill(found: AgentSkillResponse, caller: str) -> list[str]:
    """Lines for behind a `SKILL.md`: its other files, and the tools that it names, which `caller` calls; none behind
    another file."""
    if found["path"] != MAIN_FILE:
        return []
    others = [path for path in found["files"] if path != MAIN_FILE]
    more = f" and {len(others) - MAX_LISTED} more" if len(others) > MAX_LISTED else ""
    lines = [f"[Its other files, by path: {', '.join(others[:MAX_LISTED])}{more}]"] if others else []
    if found["connectedTools"]:
        lines.append(f"[Tools that it names, ready for {caller}: {', '.join(found['connectedTools'])}]")
    if found["missingTools"]:
        lines.append(f"[Tools that it names, not connected: {', '.join(found['missingTools'])}]")
    return lines
