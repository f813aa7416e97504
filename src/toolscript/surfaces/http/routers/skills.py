"""Skills over HTTP: define them, list their tools, review suggestions, propose new skills, and sync the catalogue."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator, Field, StrictBool, StringConstraints

from toolscript.domain.catalog import MAX_SKILLS, Skill, SuggestionStatus
from toolscript.services.skills.proposals import MAX_PROPOSALS
from toolscript.services.skills.skills import (
    MAX_CHOSEN,
    MAX_DESCRIPTION_LENGTH,
    MAX_ID_LENGTH,
    MAX_NAME_LENGTH,
    MAX_WORD_LENGTH,
    MAX_WORDS,
)
from toolscript.surfaces.http.bodies import ONE_LINE, RequestModel
from toolscript.surfaces.http.dependencies import ADMIN, SEARCH, CurrentApp
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.http.responses import JsonResponse
from toolscript.surfaces.json import skills as responses
from toolscript.surfaces.json.hierarchical import SyncResponse, build_sync_response

Line = Annotated[str, StringConstraints(strip_whitespace=True, pattern=ONE_LINE)]
Id = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=MAX_ID_LENGTH),
    Field(description="Lower-case letters, digits and `_`, starting with a letter.", examples=["calendar_events"]),
]
Name = Annotated[
    Line,
    Field(min_length=1, max_length=MAX_NAME_LENGTH, description="Name for people.", examples=["Calendar & Events"]),
]
Description = Annotated[
    str,
    Field(
        max_length=MAX_DESCRIPTION_LENGTH,
        description="What its tools do; searches find a skill without tools by this text.",
        examples=["Create, list and cancel events in calendars."],
    ),
]
Domain = Annotated[
    Line,
    Field(max_length=MAX_ID_LENGTH, description="The wider area of the skill.", examples=["productivity"]),
]
Words = Annotated[list[Annotated[Line, Field(min_length=1, max_length=MAX_WORD_LENGTH)]], Field(max_length=MAX_WORDS)]
Reviewer = Annotated[Line, Field(max_length=MAX_NAME_LENGTH, description="Who decided.", examples=["ada"])]


class SkillRequest(RequestModel):
    """A skill. Its id cannot change."""

    id: Id | None = None
    name: Name
    description: Description = ""
    parent_domain: Domain | None = None
    keywords: Words = Field([], description="Words that people use for it.", examples=[["event", "meeting"]])
    examples: Words = Field([], description="Typical tools.", examples=[["create_event"]])
    is_active: StrictBool = Field(default=True, description="Whether searches and classifiers use it.")

    def to_skill(self, skill_id: str) -> Skill:
        """Converts it to the skill with this id."""
        fields = {**vars(self), "id": self.id or skill_id, "parent_domain": self.parent_domain or None}
        return Skill(**fields | {"keywords": tuple(self.keywords), "examples": tuple(self.examples)})


class NewSkillRequest(SkillRequest):
    """A new skill."""

    id: Id


class SuggestRequest(RequestModel):
    """A skill for chosen tools, to be reviewed."""

    name: Name
    description: Description = ""
    tool_ids: list[Annotated[str, StringConstraints(pattern=ONE_LINE)]] = Field(
        min_length=1, max_length=MAX_CHOSEN, description="The tools that the skill is for.", examples=[["git__git_log"]]
    )


class ApproveRequest(RequestModel):
    """Values for the new skill that replace the suggested ones."""

    skill_id: Id | None = None
    name: Name | None = None
    description: Description | None = None
    reviewed_by: Reviewer | None = None


class RejectRequest(RequestModel):
    """The rejection of a suggestion."""

    reviewed_by: Reviewer | None = None


class MergeRequest(RequestModel):
    """The existing skill that gets the suggestion's tool."""

    skill_id: Id
    reviewed_by: Reviewer | None = None


class ProposeRequest(RequestModel):
    """How to propose skills."""

    count: int | None = Field(
        default=None, ge=1, le=MAX_PROPOSALS, description="Number of groups of tools. Default: chosen from the data."
    )
    only_waiting: StrictBool = Field(default=False, description="Only use tools that are in no skill.")
    queue: StrictBool = Field(default=False, description="Add the proposals to the suggestions.")


class ToolSkillsRequest(RequestModel):
    """The skills of a tool, chosen by a person. Classifiers do not change them."""

    skill_ids: list[Id] = Field(
        min_length=1,
        max_length=MAX_SKILLS,
        description="The tool's skills, the primary one first.",
        examples=[["calendar_events"]],
    )


class SyncRequest(RequestModel):
    """A sync on request."""

    reclassify: StrictBool = Field(default=False, description="Classify every item again.")
    force: StrictBool = Field(default=False, description="Also classify items that a person assigned to skills.")


MAX_SUGGESTION_NUMBER = 2**31 - 1

router = APIRouter(prefix="/api/v1", tags=["skills"], dependencies=[ADMIN])


def _parse_boolean(text: Any) -> Any:
    """Reads only what OpenAPI calls a boolean; pydantic would also read `yes`, `on` and `1`."""
    if text not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text == "true"


QueryBool = Annotated[bool, BeforeValidator(_parse_boolean)]
SkillId = Annotated[str, Path(description="The id of a skill.", examples=["calendar_events"])]
SuggestionNumber = Annotated[int, Path(ge=1, le=MAX_SUGGESTION_NUMBER, description="The id of a suggestion.")]
ToolId = Annotated[str, Path(description="`server__tool`, as searches return it.", examples=["calendar__create_event"])]


@router.get("/skills/suggestions", summary="List suggested skills")
async def list_suggestions(
    app: CurrentApp,
    status: Annotated[
        SuggestionStatus | Literal["all"], Query(description="Only suggestions with this status, or `all`.")
    ] = SuggestionStatus.PENDING,
) -> JsonResponse[responses.SuggestionListResponse]:
    suggestions = await app.catalogue.skills.suggestions(None if status == "all" else status)
    return JsonResponse(responses.build_suggestions_response(suggestions))


@router.post(
    "/skills/suggestions", summary="Suggest a skill for chosen tools", status_code=201, responses=errors(400, 404, 409)
)
async def suggest_skill(app: CurrentApp, body: SuggestRequest) -> JsonResponse[responses.SuggestionResponse]:
    suggestion = await app.catalogue.skills.suggest(body.name, body.description, body.tool_ids)
    return JsonResponse(responses.build_suggestion_response(suggestion), 201)


@router.post(
    "/skills/suggestions/{number}/approve",
    summary="Make a suggestion a skill, and classify the waiting tools",
    status_code=201,
    responses=errors(400, 404, 409),
)
async def approve_suggestion(
    number: SuggestionNumber, app: CurrentApp, body: ApproveRequest | None = None
) -> JsonResponse[responses.SkillResponse]:
    skill = await app.catalogue.skills.approve(number, **(body or ApproveRequest()).model_dump())
    return JsonResponse(responses.build_skill_response(skill), 201)


@router.post(
    "/skills/suggestions/{number}/reject",
    summary="Reject a suggestion: it is not suggested for that tool again",
    responses=errors(400, 404, 409),
)
async def reject_suggestion(
    number: SuggestionNumber, app: CurrentApp, body: RejectRequest | None = None
) -> JsonResponse[responses.SuggestionResponse]:
    suggestion = await app.catalogue.skills.reject(number, reviewed_by=body.reviewed_by if body else None)
    return JsonResponse(responses.build_suggestion_response(suggestion))


@router.post(
    "/skills/suggestions/{number}/merge",
    summary="Put the tools of a suggestion into an existing skill",
    responses=errors(400, 404, 409),
)
async def merge_suggestion(
    number: SuggestionNumber, app: CurrentApp, body: MergeRequest
) -> JsonResponse[responses.SuggestionResponse]:
    suggestion = await app.catalogue.skills.merge(number, body.skill_id, reviewed_by=body.reviewed_by)
    return JsonResponse(responses.build_suggestion_response(suggestion))


@router.post("/skills/propose", summary="Propose skills from the tools in the catalogue", responses=errors(400))
async def propose_skills(
    app: CurrentApp, body: ProposeRequest | None = None
) -> JsonResponse[responses.ProposalListResponse]:
    proposals = await app.catalogue.propose_skills.propose(**(body or ProposeRequest()).model_dump())
    return JsonResponse(responses.build_proposals_response(proposals))


@router.get("/skills", summary="List skills with their number of tools", dependencies=[SEARCH])
async def list_skills(app: CurrentApp) -> JsonResponse[responses.SkillListResponse]:
    return JsonResponse(responses.build_skills_response(await app.catalogue.skills.all()))


@router.post(
    "/skills", summary="Add a skill, and classify the waiting tools", status_code=201, responses=errors(400, 409)
)
async def create_skill(app: CurrentApp, body: NewSkillRequest) -> JsonResponse[responses.SkillResponse]:
    return JsonResponse(responses.build_skill_response(await app.catalogue.skills.create(body.to_skill(body.id))), 201)


@router.get(
    "/skills/{skill_id}", summary="One skill with its number of tools", responses=errors(404), dependencies=[SEARCH]
)
async def get_skill(
    skill_id: SkillId,
    app: CurrentApp,
    details: Annotated[QueryBool, Query(description="Add `tool_ids` and `updated_at`.")] = False,
) -> JsonResponse[responses.DescribedSkillResponse | responses.SkillResponse]:
    if details:
        return JsonResponse(responses.build_described_skill_response(await app.catalogue.skills.describe(skill_id)))
    return JsonResponse(responses.build_skill_response(await app.catalogue.skills.get(skill_id)))


@router.put("/skills/{skill_id}", summary="Replace a skill; its id stays", responses=errors(400, 404))
async def replace_skill(
    skill_id: SkillId, app: CurrentApp, body: SkillRequest
) -> JsonResponse[responses.SkillResponse]:
    return JsonResponse(
        responses.build_skill_response(await app.catalogue.skills.replace(skill_id, body.to_skill(skill_id)))
    )


@router.delete(
    "/skills/{skill_id}", summary="Remove a skill, and classify its tools again", status_code=204, responses=errors(404)
)
async def remove_skill(skill_id: SkillId, app: CurrentApp) -> None:
    await app.catalogue.skills.remove(skill_id)


@router.get(
    "/skills/{skill_id}/tools",
    summary="The tools in a skill, by confidence",
    responses=errors(404),
    dependencies=[SEARCH],
)
async def list_skill_tools(skill_id: SkillId, app: CurrentApp) -> JsonResponse[responses.SkillToolsResponse]:
    return JsonResponse(responses.build_skill_tools_response(skill_id, await app.catalogue.skills.tools(skill_id)))


@router.put("/tools/{tool_id:path}/skills", summary="Set the skills of a tool", responses=errors(400, 404))
async def assign_skills(
    tool_id: ToolId, app: CurrentApp, body: ToolSkillsRequest
) -> JsonResponse[responses.ToolSkillsResponse]:
    return JsonResponse(
        responses.build_tool_skills_response(await app.catalogue.skills.assign(tool_id, body.skill_ids))
    )


@router.delete(
    "/tools/{tool_id:path}/skills",
    summary="Let the classifier choose the skills of a tool again",
    responses=errors(404),
)
async def release_tool(tool_id: ToolId, app: CurrentApp) -> JsonResponse[responses.ToolSkillsResponse]:
    return JsonResponse(responses.build_tool_skills_response(await app.catalogue.skills.release(tool_id)))


@router.post("/sync", summary="Update catalogue, skills and index now", responses=errors(400))
async def run_sync(app: CurrentApp, body: SyncRequest | None = None) -> JsonResponse[SyncResponse]:
    body = body or SyncRequest()
    return JsonResponse(build_sync_response(await app.servers.resync.run(reclassify=body.reclassify, force=body.force)))
