"""Measures what the tools of servers cost in an agent's context, against the tools of Toolscript."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from toolscript.domain.catalog import ItemType
from toolscript.domain.errors import ToolscriptError

if TYPE_CHECKING:
    from toolscript.app.engines import Servers
    from toolscript.domain.servers import ServerSpec

MAX_CONNECTIONS = 8


@dataclass(frozen=True, slots=True)
class ToolCost:
    """How many tools there are, and how many tokens their definitions take; or why that is not known."""

    tools: int = 0
    tokens: int = 0
    problem: str | None = None


async def measure_servers(servers: Servers, specs: Sequence[ServerSpec], *, within: float) -> dict[str, ToolCost]:
    """Connects to every server once, and counts its tools as `tools/list` lists them."""
    slots = asyncio.Semaphore(MAX_CONNECTIONS)

    async def measure(spec: ServerSpec) -> ToolCost:
        try:
            async with slots, asyncio.timeout(within), servers.connect(spec, within=within) as server:
                items = (await server.list_items()).items
        except TimeoutError:
            return ToolCost(problem=f"no answer within {within:g} s")
        except ToolscriptError as error:
            return ToolCost(problem=error.message)
        return count_tools((i.name, i.description, i.input_schema) for i in items if i.type is ItemType.TOOL)

    costs = await asyncio.gather(*(measure(spec) for spec in specs))
    return {spec.name: cost for spec, cost in zip(specs, costs, strict=True)}


def measure_own_tools() -> ToolCost:
    """What the tools of Toolscript's MCP server cost, with what they say at most of the servers behind it."""
    from toolscript.surfaces.mcp.definitions import OVERVIEW_TOKENS, TOOLS

    own = count_tools((tool.name, tool.description, tool.input_schema) for tool in TOOLS)
    return replace(own, tokens=own.tokens + OVERVIEW_TOKENS)


def count_tools(tools: Iterable[tuple[str, str | None, Mapping[str, Any] | None]]) -> ToolCost:
    """What tools cost that have these names, descriptions and input schemas."""
    from toolscript.services.tools.token_costs import estimate_tokens  # --help must not wait for it to load

    sources = [json.dumps({"name": n, "description": d, "inputSchema": s}, ensure_ascii=False) for n, d, s in tools]
    return ToolCost(len(sources), estimate_tokens(sum(map(len, sources))))


def add_costs(costs: Iterable[ToolCost]) -> ToolCost:
    """The sum of the known costs."""
    known = [cost for cost in costs if cost.problem is None]
    return ToolCost(sum(cost.tools for cost in known), sum(cost.tokens for cost in known))
