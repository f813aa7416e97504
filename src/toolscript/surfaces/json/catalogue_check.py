"""The check of a catalogue as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from toolscript.domain.catalog import get_server

if TYPE_CHECKING:
    from toolscript.services.catalogue_check.check import CatalogueReport, DescriptionProposal


class CatalogueFindingResponse(TypedDict):
    """Something that leads searches astray."""

    kind: Annotated[
        Literal["description", "similar", "duplicates", "requests"],
        "`description`: the tool has none, or one word. `similar`: two tools of one server have similar vectors. "
        "`duplicates`: tools of equal definition. `requests`: recorded requests that the first tool served find one "
        "of the others first.",
    ]
    level: Annotated[Literal["error", "note"], "A note may be intended."]
    tools: list[str]
    text: str
    similarity: Annotated[float | None, "The cosine of similar tools."]
    requests: Annotated[list[str], "The recorded requests of `requests`."]


class DescriptionProposalResponse(TypedDict):
    """A better description of a tool, from the language model. Nothing is applied."""

    tool_id: str
    server: str
    override: Annotated[
        dict[str, Any] | None, "To be put into the entry of the server by hand; null if there is no description."
    ]
    r5_before: Annotated[float | None, "R@5 of the held-out requests with the present description."]
    r5_after: Annotated[float | None, "The same with the proposed one."]
    measured_on: Annotated[
        int,
        "Number of recorded requests that the language model was not shown: of this tool, and of "
        "the tools that it is mistaken for.",
    ]
    reason: Annotated[str, "Why there is no description, or no measurement."]


class CatalogueCheckResponse(TypedDict):
    """What was checked, and found."""

    ok: Annotated[bool, "Whether there is no error."]
    tools: int
    compared: Annotated[int, "Number of tools with a vector: only these were compared."]
    requests: Annotated[int, "Number of recorded requests that were searched again."]
    errors: int
    notes: int
    findings: list[CatalogueFindingResponse]
    proposals: list[DescriptionProposalResponse]


def build_catalogue_check_response(report: CatalogueReport) -> CatalogueCheckResponse:
    """Builds the response of `GET /api/v1/catalogue/check`."""
    errors = sum(finding.is_error for finding in report.findings)
    return {
        "ok": not errors,
        "tools": report.tools,
        "compared": report.compared,
        "requests": report.requests,
        "errors": errors,
        "notes": len(report.findings) - errors,
        "findings": [
            {
                "kind": finding.kind.value,
                "level": "error" if finding.is_error else "note",
                "tools": list(finding.tools),
                "text": finding.text,
                "similarity": finding.similarity,
                "requests": list(finding.requests),
            }
            for finding in report.findings
        ],
        "proposals": [_build_proposal(proposal) for proposal in report.proposals],
    }


def _build_proposal(proposal: DescriptionProposal) -> DescriptionProposalResponse:
    tools = {proposal.name: {"description": proposal.description}}
    return {
        "tool_id": proposal.tool_id,
        "server": get_server(proposal.tool_id),
        "override": {"tools": tools} if proposal.description else None,
        "r5_before": proposal.before,
        "r5_after": proposal.after,
        "measured_on": proposal.measured_on,
        "reason": proposal.reason,
    }
