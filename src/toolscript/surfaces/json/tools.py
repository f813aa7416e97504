"""Responses about tools, servers and readiness as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, cast

from toolscript.codegen.signatures import format_signature
from toolscript.domain.catalog import Item, ItemType, Schema
from toolscript.domain.servers import META_KEY, CallState
from toolscript.surfaces.json.definitions import More, Share, omit_empty
from toolscript.surfaces.json.searches import OptionalDegraded

if TYPE_CHECKING:
    from toolscript.app.app import App, Model
    from toolscript.domain.servers import CallResult, ServerStatus
    from toolscript.services.tools.hybrid_search import ToolHit, ToolResults
    from toolscript.services.tools.tool_map import ToolMap

MAX_LINE = 110

FindState = Callable[[str], CallState | None]
"""Finds the state of a server that is asleep, stopped, or of the demo."""

VARIANTS = (
    "Ids of the tools of other servers with the same package, arguments, name, description and schemas, in the order "
    "of the configuration: a call to one of them runs on its server. Left out if there are none."
)
SERVER_ARGUMENTS = (
    "In what the server differs from others with the same tool, such as a folder or an address, without secrets. Left "
    "out if there are no such servers."
)
SERVER_STATE = (
    "`asleep`: its server is not running, and the first call waits until it has started. `stopped`: somebody has "
    "stopped its server, and calls are refused. `demo: cannot be called`: a tool of the demo catalogue, which has no "
    "server. Otherwise left out."
)
QUARANTINED = "Why it is in quarantine and cannot be called. Left out if it can."
CLOSEST = (
    "The nearest tools below the threshold, best first, where fewer results than the limit are above it. Perhaps one "
    "of them serves the request, perhaps none does. Left out if there are none."
)
SERVERS_STARTING = "Servers that are still starting, whose tools are not included yet. Left out if there are none."


class PlacedToolResponse(TypedDict):
    """A tool on the map."""

    id: str
    x: Annotated[float, More(minimum=-1, maximum=1)]
    y: Annotated[float, More(minimum=-1, maximum=1)]
    skill_id: str | None


class DuplicateResponse(TypedDict):
    """Two tools that are nearly the same."""

    tool_ids: list[str]
    similarity: Annotated[float, "Cosine similarity."]


class MapResponse(TypedDict):
    """The map of the catalogue. Tools without a vector are left out."""

    tools: list[PlacedToolResponse]
    duplicates: Annotated[list[DuplicateResponse], "Pairs, the most similar first."]


class ReadinessResponse(TypedDict):
    """The gateway is ready."""

    status: Literal["ready"]
    model: Annotated[str | None, "The embedding model in use."]
    fallback: Annotated[str | None, "Why it is not the requested model."]
    servers: Annotated[
        dict[str, int], "Number of servers in each state; `needs_login`: those that wait for `toolscript login`."
    ]


class PartsResponse(TypedDict):
    """What a confidence is made of: the parts add up to it."""

    meaning: Annotated[Share, "How close the text of the tool is to the query."]
    words: Annotated[Share, "Words that the tool shares with the query."]
    name: Annotated[Share, "The query contains the tool's name, or one like it."]
    domain: Annotated[Share, "Query and tool are of the same domain."]
    capability: Annotated[Share, "The tool can do the work of the query's domain."]


class SearchTokensResponse(TypedDict):
    """Context tokens, estimated."""

    answer: Annotated[int, "Tokens of the results."]
    allTools: Annotated[int, "Tokens of all tools together."]


ITEM_TYPE = "Left out for a tool. `GET /agent-skills/{id}` reads an agent skill."
_NEED = "The part of a request with several needs that it serves. Left out for a request with one."
_Need = TypedDict("_Need", {"for": NotRequired[Annotated[str | None, _NEED]]})


class ToolHitResponse(_Need, TypedDict):
    """A tool that matches the query."""

    toolId: Annotated[str, "`server__tool`."]
    serverName: str
    toolName: str
    type: NotRequired[Annotated[ItemType, ITEM_TYPE]]
    confidence: Share
    reason: Annotated[str, "Why it matches."]
    description: str
    variants: NotRequired[Annotated[list[str], VARIANTS]]
    serverArguments: NotRequired[Annotated[str, SERVER_ARGUMENTS]]
    serverState: NotRequired[Annotated[CallState | None, SERVER_STATE]]
    quarantined: NotRequired[Annotated[str, QUARANTINED]]
    parts: NotRequired[Annotated[PartsResponse, "Left out unless `explain` is true."]]


class CloseToolResponse(TypedDict):
    """A tool that is near, but not as sure as the threshold."""

    toolId: Annotated[str, "`server__tool`."]
    type: NotRequired[Annotated[ItemType, ITEM_TYPE]]
    confidence: Share
    description: Annotated[str, "One line."]
    variants: NotRequired[Annotated[list[str], VARIANTS]]
    serverArguments: NotRequired[Annotated[str, SERVER_ARGUMENTS]]


class ToolSearchResponse(TypedDict):
    """Matching tools, best first."""

    query: str
    results: list[ToolHitResponse]
    totalResults: int
    closest: NotRequired[Annotated[list[CloseToolResponse], CLOSEST]]
    threshold: float
    degraded: NotRequired[OptionalDegraded]
    serversStarting: NotRequired[Annotated[list[str], SERVERS_STARTING]]
    timingsMs: NotRequired[
        Annotated[dict[str, float], "Milliseconds of each stage. Left out unless `explain` is true."]
    ]
    candidates: NotRequired[Annotated[int, "Number of tools that were compared. Left out unless `explain` is true."]]
    tokens: NotRequired[Annotated[SearchTokensResponse, "Left out unless `explain` is true."]]


class SearchStatsResponse(TypedDict):
    """What tool search searches, and with which model."""

    indexedTools: int
    embeddedSinceStart: int
    model: str | None
    dimensions: int | None
    requestedModel: str
    fallback: Annotated[str | None, "Why the requested model is not in use."]
    alpha: float
    learned: Annotated[
        dict[str, Any],
        "How loud words are beside meaning (`keyword`), how far below unrelated texts candidates still "
        "rank (`beneath`), below which confidence nothing is shown (`noise`), and the learned curves from what a "
        "search knows to the confidence of its first hit.",
    ]
    limit: int
    threshold: float


class ToolSummaryResponse(TypedDict):
    """A tool, prompt, resource or agent skill."""

    toolId: Annotated[str, "`server__tool`."]
    serverName: str
    toolName: str
    type: ItemType
    description: str
    signature: str
    quarantined: NotRequired[Annotated[str, QUARANTINED]]


class ToolListResponse(TypedDict):
    """Tools, prompts, resources and agent skills."""

    tools: list[ToolSummaryResponse]
    totalTools: int


class ToolResponse(ToolSummaryResponse):
    """A tool, prompt, resource or agent skill with its schemas."""

    title: str | None
    inputSchema: Schema | None
    outputSchema: Schema | None
    annotations: Schema | None
    needsApproval: NotRequired[
        Annotated[
            Literal[True] | None,
            "A person has to approve each call: a call here waits for a decision. Otherwise left out.",
        ]
    ]
    serverState: NotRequired[Annotated[CallState | None, SERVER_STATE]]


def find_no_state(_: str) -> None:
    """Of no server it is known that it is asleep or stopped."""


def build_search_response(results: ToolResults, find_state: FindState = find_no_state) -> ToolSearchResponse:
    """Builds the response of `GET /search` and `toolscript search --json`."""
    response: ToolSearchResponse = {
        "query": results.query,
        "results": [_build_hit(hit, find_state) for hit in results.hits],
        "totalResults": len(results.hits),
        "closest": [_build_close(hit) for hit in results.closest],
        "threshold": results.threshold,
        "degraded": list(results.report.degraded),
        "serversStarting": results.report.servers_starting,
    }
    return omit_empty(response, "closest", "degraded", "serversStarting")


def _build_hit(hit: ToolHit, find_state: FindState) -> ToolHitResponse:
    built: ToolHitResponse = {
        "toolId": hit.id,
        "serverName": hit.server,
        "toolName": hit.name,
        **_name_type(hit),  # type: ignore[typeddict-item]
        "confidence": hit.confidence,
        "reason": hit.reason,
        "description": hit.description,
        "for": hit.need,
        "variants": list(hit.variants),
        "serverArguments": hit.server_arguments,
        "serverState": find_state(hit.server),
        "quarantined": hit.quarantine,
    }
    return omit_empty(built, "for", "variants", "serverArguments", "serverState", "quarantined")


def _build_close(hit: ToolHit) -> CloseToolResponse:
    close: CloseToolResponse = {
        "toolId": hit.id,
        **_name_type(hit),  # type: ignore[typeddict-item]
        "confidence": hit.confidence,
        "description": shorten(hit.description, MAX_LINE),
        "variants": list(hit.variants),
        "serverArguments": hit.server_arguments,
    }
    return omit_empty(close, "variants", "serverArguments")


def _name_type(hit: ToolHit) -> dict[str, ItemType]:
    return {} if hit.type == ItemType.TOOL else {"type": ItemType(hit.type)}


def shorten(text: str, length: int) -> str:
    """Returns the text in one line, cut to the length."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"


def add_explanation(response: ToolSearchResponse, results: ToolResults) -> None:
    """Adds to a response of `GET /search` what the confidences are made of, and how the search ran."""
    for shown, hit in zip(response["results"], results.hits, strict=True):
        shown["parts"] = _build_parts(hit)
    response["timingsMs"] = {stage: round(took, 3) for stage, took in results.report.timings_ms.items()}
    response["candidates"] = results.report.counts["candidates"]


def _build_parts(hit: ToolHit) -> PartsResponse:
    """The shares of a confidence, which they add up to: the share of the domain is what no other part explains."""
    evidence, confidence = hit.evidence, hit.confidence
    if evidence.exact:
        return {"meaning": 0.0, "words": 0.0, "name": confidence, "domain": 0.0, "capability": 0.0}
    parts = {
        "meaning": evidence.semantic,
        "words": evidence.keyword,
        "name": evidence.fuzzy,
        "domain": max(0.0, confidence - evidence.semantic - evidence.keyword - evidence.fuzzy - evidence.inferred),
        "capability": evidence.inferred,
    }
    if not evidence.domain:
        parts["domain"] = 0.0
    scale = confidence / max(sum(parts.values()), 1e-9)
    return cast("PartsResponse", {name: round(scale * part, 4) for name, part in parts.items()})


def build_stats_response(app: App, indexed: int) -> SearchStatsResponse:
    """Builds the response of `GET /search/stats`."""
    settings, model = app.settings, app.model
    return {
        "indexedTools": indexed,
        "embeddedSinceStart": app.catalogue.sync.embedded,
        "model": model.embedder.model if model.embedder else None,
        "dimensions": model.embedder.dimensions if model.embedder else None,
        "requestedModel": settings.search_model,
        "fallback": model.fallback_reason,
        "alpha": settings.search_alpha,
        "learned": asdict(app.tools.ranking.learned),
        "limit": settings.search_limit,
        "threshold": settings.search_threshold,
    }


def build_map_response(drawn: ToolMap) -> MapResponse:
    """Builds the response of `GET /api/v1/map`: coordinates with three digits, more than a screen has."""
    return {
        "tools": [
            {"id": each.id, "x": round(each.x, 3), "y": round(each.y, 3), "skill_id": each.skill}
            for each in drawn.tools
        ],
        "duplicates": [
            {"tool_ids": [first, second], "similarity": round(similarity, 4)}
            for first, second, similarity in drawn.duplicates
        ],
    }


def build_readiness_response(statuses: Sequence[ServerStatus], model: Model) -> ReadinessResponse:
    """Builds the response of `GET /ready`: the model, and the number of servers in each state; those that somebody has
    to log in at count as `needs_login`."""
    return {
        "status": "ready",
        "model": model.embedder.model if model.embedder else None,
        "fallback": model.fallback_reason,
        "servers": dict(Counter("needs_login" if s.needs_login else s.state.value for s in statuses)),
    }


def build_tools_response(items: Sequence[Item]) -> ToolListResponse:
    """Builds the response of `GET /tools` and `toolscript list-tools --json`."""
    return {"tools": [_build_summary(item) for item in items], "totalTools": len(items)}


def build_tool_response(
    item: Item, find_state: FindState = find_no_state, *, needs_approval: bool = False
) -> ToolResponse:
    """Builds the response of `GET /tools/{id}`: everything that a call needs."""
    response: ToolResponse = {
        **_build_summary(item),
        "title": item.title,
        "inputSchema": item.input_schema,
        "outputSchema": item.output_schema,
        "annotations": item.annotations,
        "needsApproval": True if needs_approval else None,
        "serverState": find_state(item.server),
    }
    return omit_empty(response, "needsApproval", "serverState")


def build_call_response(result: CallResult) -> Any:
    """Builds the response of `POST /tools/{id}`: the structured result if there is one, else the content; beside it
    the handle of a result that was cut."""
    if result.structured is not None:
        return result.structured
    cut = (result.raw.get("_meta") or {}).get(META_KEY)
    return {"content": list(result.content), **({"_meta": {META_KEY: cut}} if cut else {})}


def _build_summary(item: Item) -> ToolSummaryResponse:
    summary: ToolSummaryResponse = {
        "toolId": item.id,
        "serverName": item.server,
        "toolName": item.name,
        "type": item.type,
        "description": item.description,
        "signature": format_signature(item),
        "quarantined": item.quarantine,
    }
    return omit_empty(summary, "quarantined")
