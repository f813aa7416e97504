"""The requests of MCP that use an item."""

from __future__ import annotations

from typing import Any

import mcp_types as types

from toolscript.adapters.mcp.lenient_reader import expand_template
from toolscript.domain.agent_skills import find_file
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.servers import CallRelay


def build_request(item: Item, arguments: dict[str, Any], relay: CallRelay) -> tuple[Any, Any]:
    """The request that calls a tool, gets a prompt, reads a resource or a file of an agent skill, and the type of its
    result. Where we trace, the
    SDK replaces the caller's trace context by the context of our own span."""
    match item.type:
        case ItemType.TOOL:
            about: Any = {"_meta": dict(relay.trace)} if relay.trace else {}
            call = types.CallToolRequestParams(name=item.listed_name, arguments=arguments, **about)
            return types.CallToolRequest(params=call), types.CallToolResult
        case ItemType.PROMPT:
            texts = {name: str(value) for name, value in arguments.items()}
            prompt = types.GetPromptRequestParams(name=item.name, arguments=texts)
            return types.GetPromptRequest(params=prompt), types.GetPromptResult
        case ItemType.RESOURCE:
            known = item.annotations or {}
            uri = known.get("uri") or expand_template(known.get("uriTemplate", ""), arguments)
            return types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=uri)), types.ReadResourceResult
        case ItemType.AGENT_SKILL:
            _, file = find_file(item, arguments)
            read = types.ReadResourceRequestParams(uri=file.uri)
            return types.ReadResourceRequest(params=read), types.ReadResourceResult
