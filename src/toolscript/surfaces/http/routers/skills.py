"""Skills over HTTP: define them, look into them, decide about suggested ones, have some proposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Body, FastAPI, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from toolscript.domain.catalog import Skill, SuggestionStatus
from toolscript.services.catalogue.skill_proposals import MAX_PROPOSALS
from toolscript.services.catalogue.skills import (
    MAX_DESCRIPTION_LENGTH,
    MAX_ID_LENGTH,
    MAX_NAME_LENGTH,
    MAX_SKILLS,
    MAX_WORD_LENGTH,
    MAX_WORDS,
)
from toolscript.surfaces.http.openapi import errors
from toolscript.surfaces.json.skills import (
    build_proposals_response,
    build_skill_response,
    build_skill_tools_response,
    build_skills_response,
    build_suggestion_response,
    build_suggestions_response,
    build_tool_skills_response,
)

if TYPE_CHECKING:
    from toolscript.surfaces.http.served_app import ServedApp

SKILLS = "/api/v1/skills"
LARGEST_NUMBER = 2**31 - 1
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"
NOT_USABLE, NOT_FOUND, TAKEN = errors(400), errors(404), errors(409)

Id = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=MAX_ID_LENGTH),
    Field(description="Lower-case letters, digits and _, the first a letter.", examples=["calendar_events"]),
]
Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_LENGTH, pattern=ONE_LINE),
    Field(description="What people read.", examples=["Calendar & Events"]),
]
Description = Annotated[
    str,
    StringConstraints(max_length=MAX_DESCRIPTION_LENGTH),
    Field(
        description="What the tools in it do; a skill without tools is found by this.",
        examples=["Create, list and cancel events in calendars."],
    ),
]
Domain = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=MAX_ID_LENGTH, pattern=ONE_LINE),
    Field(description="What the skill is a part of.", examples=["productivity"]),
]
Words = Annotated[
    list[
        Annotated[
            str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_WORD_LENGTH, pattern=ONE_LINE)
        ]
    ],
    Field(max_length=MAX_WORDS),
]
Reviewer = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=MAX_NAME_LENGTH, pattern=ONE_LINE),
    Field(description="Who decides.", examples=["ada"]),
]
SkillId = Annotated[str, Path(description="The id of a skill.", examples=["calendar_events"])]
Number = Annotated[int, Path(ge=1, le=LARGEST_NUMBER, description="The number of a suggestion.")]
ToolId = Annotated[str, Path(description="`server__tool`, as searches tell it.", examples=["calendar__create_event"])]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SkillChange(_Asked):
    """Everything of a skill but its id, which cannot change."""

    id: Id | None = None
    name: Name
    description: Description = ""
    parent_domain: Domain | None = None
    keywords: Annotated[Words, Field(description="Words that people use for it.", examples=[["event", "meeting"]])] = []
    examples: Annotated[Words, Field(description="Tools that are typical.", examples=[["create_event"]])] = []
    is_active: Annotated[bool, Field(description="Whether searches and classifiers use it.")] = True

    def skill(self, skill_id: str) -> Skill:
        """The skill of that id, as described."""
        return Skill(
            self.id or skill_id,
            self.name,
            self.description,
            self.parent_domain or None,
            tuple(self.keywords),
            tuple(self.examples),
            self.is_active,
        )


class NewSkill(SkillChange):
    """A skill to be added."""

    id: Id


class Approval(_Asked):
    """What the skill is to be called instead of what was suggested; all of it may be left out."""

    skill_id: Id | None = None
    name: Name | None = None
    description: Description | None = None
    reviewed_by: Reviewer | None = None


class Rejection(_Asked):
    """Who declines."""

    reviewed_by: Reviewer | None = None


class Merging(_Asked):
    """The skill that there is, into which the suggestion's tool goes."""

    skill_id: Id
    reviewed_by: Reviewer | None = None


class Wish(_Asked):
    """What is to be proposed."""

    count: Annotated[
        int | None,
        Field(ge=1, le=MAX_PROPOSALS, description="Into how many groups tools are sorted; chosen when not given."),
    ] = None
    only_waiting: Annotated[bool, Field(description="Look only at tools that are in no skill.")] = False
    queue: Annotated[bool, Field(description="Put the proposals into the queue of suggestions.")] = False


class Override(_Asked):
    """A person's word on where a tool belongs, which no classifier takes back."""

    skill_ids: Annotated[
        list[Id],
        Field(
            min_length=1,
            max_length=MAX_SKILLS,
            description="The skills it is in, the most fitting one first.",
            examples=[["calendar_events"]],
        ),
    ]


def add_skills(http: FastAPI, serving: ServedApp) -> None:
    """Adds every route about skills. What has a name of its own stands before what takes any id."""
    skills = APIRouter(tags=["skills"])
    _add_suggestions(skills, serving)
    _add_proposals(skills, serving)
    _add_skills(skills, serving)
    _add_overrides(skills, serving)
    http.include_router(skills)


def _add_suggestions(http: APIRouter, serving: ServedApp) -> None:
    @http.get(f"{SKILLS}/suggestions", summary="The skills that tools were found to need")
    async def suggestions(
        status: Annotated[
            SuggestionStatus | Literal["all"], Query(description="Only those of this status, or `all` of them.")
        ] = SuggestionStatus.PENDING,
    ) -> dict[str, Any]:
        wanted = None if status == "all" else status
        return build_suggestions_response(await serving.app.skills.suggestions(wanted))

    @http.post(
        f"{SKILLS}/suggestions/{{number}}/approve",
        summary="Make a suggestion a skill, and sort the waiting tools anew",
        status_code=201,
        responses=NOT_USABLE | NOT_FOUND | TAKEN,
    )
    async def approve(number: Number, wanted: Annotated[Approval | None, Body()] = None) -> dict[str, Any]:
        given = (wanted or Approval()).model_dump()
        return build_skill_response(await serving.app.skills.approve(number, **given))

    @http.post(
        f"{SKILLS}/suggestions/{{number}}/reject",
        summary="Decline a suggestion: the same is not suggested for that tool again",
        responses=NOT_USABLE | NOT_FOUND | TAKEN,
    )
    async def reject(number: Number, wanted: Annotated[Rejection | None, Body()] = None) -> dict[str, Any]:
        reviewed_by = wanted.reviewed_by if wanted else None
        return build_suggestion_response(await serving.app.skills.reject(number, reviewed_by=reviewed_by))

    @http.post(
        f"{SKILLS}/suggestions/{{number}}/merge",
        summary="Put the tool of a suggestion into a skill that there is",
        responses=NOT_USABLE | NOT_FOUND | TAKEN,
    )
    async def merge(number: Number, wanted: Merging) -> dict[str, Any]:
        skills = serving.app.skills
        return build_suggestion_response(await skills.merge(number, wanted.skill_id, reviewed_by=wanted.reviewed_by))


def _add_proposals(http: APIRouter, serving: ServedApp) -> None:
    @http.post(f"{SKILLS}/propose", summary="Propose skills from the tools there are", responses=NOT_USABLE)
    async def propose(wanted: Annotated[Wish | None, Body()] = None) -> dict[str, Any]:
        given = (wanted or Wish()).model_dump()
        return build_proposals_response(await serving.app.propose_skills.propose(**given))


def _add_skills(http: APIRouter, serving: ServedApp) -> None:
    @http.get(SKILLS, summary="List the skills, with how many tools each has")
    async def skills(
        active_only: Annotated[bool, Query(description="Leave out those that are not in use.")] = False,
    ) -> dict[str, Any]:
        return build_skills_response(await serving.app.skills.all(active_only=active_only))

    @http.post(
        SKILLS,
        summary="Add a skill, and sort the waiting tools anew",
        status_code=201,
        responses=NOT_USABLE | TAKEN,
    )
    async def create(wanted: NewSkill) -> dict[str, Any]:
        return build_skill_response(await serving.app.skills.create(wanted.skill(wanted.id)))

    @http.get(f"{SKILLS}/{{skill_id}}", summary="One skill, with how many tools it has", responses=NOT_FOUND)
    async def skill(skill_id: SkillId) -> dict[str, Any]:
        return build_skill_response(await serving.app.skills.get(skill_id))

    @http.put(
        f"{SKILLS}/{{skill_id}}",
        summary="Change everything of a skill but its id",
        responses=NOT_USABLE | NOT_FOUND,
    )
    async def replace(skill_id: SkillId, wanted: SkillChange) -> dict[str, Any]:
        return build_skill_response(await serving.app.skills.replace(skill_id, wanted.skill(skill_id)))

    @http.delete(
        f"{SKILLS}/{{skill_id}}",
        summary="Remove a skill; the tools in it are sorted anew",
        status_code=204,
        responses=NOT_FOUND,
    )
    async def remove(skill_id: SkillId) -> None:
        await serving.app.skills.remove(skill_id)

    @http.get(f"{SKILLS}/{{skill_id}}/tools", summary="The tools in a skill, surest first", responses=NOT_FOUND)
    async def tools(skill_id: SkillId) -> dict[str, Any]:
        return build_skill_tools_response(skill_id, await serving.app.skills.tools(skill_id))


def _add_overrides(http: APIRouter, serving: ServedApp) -> None:
    @http.put(
        "/api/v1/tools/{tool_id:path}/skills",
        summary="Say which skills a tool is in",
        responses=NOT_USABLE | NOT_FOUND,
    )
    async def assign(tool_id: ToolId, wanted: Override) -> dict[str, Any]:
        return build_tool_skills_response(await serving.app.skills.assign(tool_id, wanted.skill_ids))

    @http.delete(
        "/api/v1/tools/{tool_id:path}/skills", summary="Give a tool back to the classifier", responses=NOT_FOUND
    )
    async def release(tool_id: ToolId) -> dict[str, Any]:
        return build_tool_skills_response(await serving.app.skills.release(tool_id))
