"""Responses about tools, servers and the state of the gateway."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from toolscript.domain.catalog import ItemType
from toolscript.domain.search import SearchPart
from toolscript.domain.servers import CallState
from toolscript.surfaces.http.schemas.models import DEGRADED, CamelResponseModel, ResponseModel


class AuditProblemResponse(ResponseModel):
    """Events that are not in the audit."""

    lost: int = Field(description="Number of lost events since the start.")
    failing: bool = Field(description="Whether the last attempt to write failed.")


class HealthResponse(ResponseModel):
    """The process, or a part of it, works."""

    status: Literal["ok"]
    audit: AuditProblemResponse | None = Field(
        default=None, description="What is wrong with the audit. Left out if nothing is, and calls go on in any case."
    )
    code: dict[str, str] | None = Field(
        default=None,
        description="For each language of `POST /api/v1/run`: `ready`, or how to get it.",
        examples=[{"python": "ready"}],
    )


class ReadinessResponse(ResponseModel):
    """The gateway is ready."""

    status: Literal["ready"]
    model: str | None = Field(description="The embedding model in use.")
    fallback: str | None = Field(description="Why it is not the requested model.")
    servers: dict[str, int] = Field(
        description="Number of servers in each state; `needs_login`: those that wait for `toolscript login`."
    )


SERVER_STATE = (
    "`asleep`: its server is not running, and the first call waits until it has started. `stopped`: somebody has "
    "stopped its server, and calls are refused. `demo: cannot be called`: a tool of the demo catalogue, which has no "
    "server. Otherwise left out."
)
QUARANTINED = "Why it is in quarantine and cannot be called. Left out if it can."


VARIANTS = (
    "Ids of the tools of other servers with the same package, arguments, name, description and schemas, in the order "
    "of the configuration: a call to one of them runs on its server. Left out if there are none."
)
SERVER_ARGUMENTS = (
    "In what the server differs from others with the same tool, such as a folder or an address, without secrets. Left "
    "out if there are no such servers."
)


SERVERS_STARTING = "Servers that are still starting, whose tools are not included yet. Left out if there are none."


class PartsResponse(CamelResponseModel):
    """What a confidence is made of: the parts add up to it."""

    meaning: float = Field(ge=0, le=1, description="How close the text of the tool is to the query.")
    words: float = Field(ge=0, le=1, description="Words that the tool shares with the query.")
    name: float = Field(ge=0, le=1, description="The query contains the tool's name, or one like it.")
    domain: float = Field(ge=0, le=1, description="Query and tool are of the same domain.")
    capability: float = Field(ge=0, le=1, description="The tool can do the work of the query's domain.")


class SearchTokensResponse(CamelResponseModel):
    """Context tokens, estimated."""

    answer: int = Field(description="Tokens of the results.")
    all_tools: int = Field(description="Tokens of all tools together.")


class ToolHitResponse(CamelResponseModel):
    """A tool that matches the query."""

    tool_id: str = Field(description="`server__tool`.")
    server_name: str
    tool_name: str
    confidence: float = Field(ge=0, le=1)
    reason: str = Field(description="Why it matches.")
    description: str
    need: str | None = Field(
        default=None,
        alias="for",
        description="The part of a request with several needs that it serves. Left out for a request with one.",
    )
    variants: list[str] = Field(default_factory=list, description=VARIANTS)
    server_arguments: str | None = Field(default=None, description=SERVER_ARGUMENTS)
    server_state: CallState | None = Field(default=None, description=SERVER_STATE)
    quarantined: str | None = Field(default=None, description=QUARANTINED)
    parts: PartsResponse | None = Field(default=None, description="Left out unless `explain` is true.")


CLOSEST = (
    "The nearest tools below the threshold, best first, where fewer results than the limit are above it. Perhaps one "
    "of them serves the request, perhaps none does. Left out if there are none."
)


class CloseToolResponse(CamelResponseModel):
    """A tool that is near, but not as sure as the threshold."""

    tool_id: str = Field(description="`server__tool`.")
    confidence: float = Field(ge=0, le=1)
    description: str = Field(description="One line.")
    variants: list[str] = Field(default_factory=list, description=VARIANTS)
    server_arguments: str | None = Field(default=None, description=SERVER_ARGUMENTS)


class ToolSearchResponse(CamelResponseModel):
    """Matching tools, best first."""

    query: str
    results: list[ToolHitResponse]
    total_results: int
    closest: list[CloseToolResponse] = Field(default_factory=list, description=CLOSEST)
    threshold: float
    degraded: list[SearchPart] = Field(default_factory=list, description=f"{DEGRADED} Left out if there are none.")
    servers_starting: list[str] = Field(default_factory=list, description=SERVERS_STARTING)
    timings_ms: dict[str, float] | None = Field(
        default=None, description="Milliseconds of each stage. Left out unless `explain` is true."
    )
    candidates: int | None = Field(
        default=None, description="Number of tools that were compared. Left out unless `explain` is true."
    )
    tokens: SearchTokensResponse | None = Field(default=None, description="Left out unless `explain` is true.")


class SearchStatsResponse(CamelResponseModel):
    """What tool search searches, and with which model."""

    indexed_tools: int
    embedded_since_start: int
    model: str | None
    dimensions: int | None
    requested_model: str
    fallback: str | None = Field(description="Why the requested model is not in use.")
    alpha: float
    learned: dict[str, Any] = Field(
        description="How loud words are beside meaning (`keyword`), how far below unrelated texts candidates still "
        "rank (`beneath`), below which confidence nothing is shown (`noise`), and the learned curves from what a "
        "search knows to the confidence of its first hit."
    )
    limit: int
    threshold: float


class ToolSummaryResponse(CamelResponseModel):
    """A tool, prompt or resource."""

    tool_id: str = Field(description="`server__tool`.")
    server_name: str
    tool_name: str
    type: ItemType
    description: str
    signature: str
    quarantined: str | None = Field(default=None, description=QUARANTINED)


class ToolListResponse(CamelResponseModel):
    """Tools, prompts and resources."""

    tools: list[ToolSummaryResponse]
    total_tools: int


class ToolResponse(ToolSummaryResponse):
    """A tool, prompt or resource with its schemas."""

    title: str | None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: dict[str, Any] | None
    needs_approval: Literal[True] | None = Field(
        default=None,
        description="A person has to approve each call: a call here waits for a decision. Otherwise left out.",
    )
    server_state: CallState | None = Field(default=None, description=SERVER_STATE)
