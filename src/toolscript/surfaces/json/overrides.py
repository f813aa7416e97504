"""What the configuration changes of a tool, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from toolscript.configuration.override_edit import WrittenOverride
from toolscript.surfaces.json.definitions import TOOL_ID


class OverrideResponse(TypedDict):
    """What the configuration changes of a tool."""

    tool_id: Annotated[str, TOOL_ID]
    server: str
    tool: Annotated[str, "The server's name for the tool: its key in `tools`."]
    file: Annotated[str, "The file that has the server's entry."]
    override: Annotated[dict[str, Any], "As the file has it, with variables instead of their values; empty: none."]
    arguments: Annotated[list[str], "The names of the tool's arguments, also of hidden arguments."]


def build_override_response(
    server: str, tool: str, written: WrittenOverride, arguments: Sequence[str]
) -> OverrideResponse:
    """Builds the response of `GET /api/v1/overrides/{tool_id}`. The id is what the written override makes of it."""
    return {
        "tool_id": f"{server}__{written.override.get('name') or tool}",
        "server": server,
        "tool": tool,
        "file": str(written.file),
        "override": dict(written.override),
        "arguments": list(arguments),
    }
