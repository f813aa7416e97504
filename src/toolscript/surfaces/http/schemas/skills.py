"""Requests and responses about skills, and about the sync that classifies tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StringConstraints

from toolscript.domain.catalog import MAX_SKILLS, ItemType, Origin, Skill, SuggestionStatus
from toolscript.services.catalogue.skill_proposals import MAX_PROPOSALS
from toolscript.services.catalogue.skills import (
    MAX_CHOSEN,
    MAX_DESCRIPTION_LENGTH,
    MAX_ID_LENGTH,
    MAX_NAME_LENGTH,
    MAX_WORD_LENGTH,
    MAX_WORDS,
)
from toolscript.surfaces.http.schemas.models import ONE_LINE, RequestModel, ResponseModel

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


class _SkillFields(ResponseModel):
    id: str
    name: str
    description: str
    parent_domain: str | None
    keywords: list[str]
    examples: list[str]


class SkillResponse(_SkillFields):
    """A skill."""

    is_active: bool
    tool_count: int


class DescribedSkillResponse(SkillResponse):
    """A skill; its tools with `details`."""

    tool_ids: list[str] = Field(
        default_factory=list, description="Its tools, the surest first. Left out unless the request has `details`."
    )
    updated_at: str | None = Field(
        default=None, description="When the skill was last changed. Left out unless the request has `details`."
    )


class SkillListResponse(ResponseModel):
    """All skills."""

    skills: list[SkillResponse]
    total: int


class _SkillToolFields(ResponseModel):
    id: str
    server: str
    name: str
    type: ItemType
    description: str
    is_active: bool


class SkillToolResponse(_SkillToolFields):
    """A tool in a skill, and how it was assigned. The last three fields are left out if the assignment is gone."""

    confidence: float | None = None
    origin: Origin | None = None
    is_primary: bool | None = None


class SkillToolsResponse(ResponseModel):
    """The tools in a skill."""

    skill_id: str
    tools: list[SkillToolResponse]
    total: int


class AssignmentResponse(ResponseModel):
    """A skill of a tool."""

    skill_id: str
    confidence: float
    origin: Origin
    is_primary: bool


class ToolSkillsResponse(_SkillToolFields):
    """A tool and its skills."""

    skills: list[AssignmentResponse]


class SuggestionResponse(ResponseModel):
    """A suggested skill."""

    id: int
    name: str
    description: str
    keywords: list[str]
    examples: list[str]
    source_tool_id: str | None
    tool_ids: list[str] = Field(description="The tools that were chosen for it, which an approval puts into the skill.")
    status: SuggestionStatus
    reviewed_by: str | None


class SuggestionListResponse(ResponseModel):
    """Suggested skills."""

    suggestions: list[SuggestionResponse]
    total: int


class ProposalResponse(_SkillFields):
    """A proposed skill."""

    tools: list[str]
    tool_count: int
    cohesion: float = Field(description="How similar its tools are to each other.")
    nearest_skill: str | None
    nearness: float = Field(description="How similar it is to the nearest skill.")


class ProposalListResponse(ResponseModel):
    """Proposed skills."""

    proposals: list[ProposalResponse]
    total: int


class ServerSyncResponse(ResponseModel):
    """What a sync changed for one server."""

    name: str
    error: str | None
    added: int
    changed: int
    vanished: int
    embedded: int


class SyncResponse(ResponseModel):
    """What a sync changed."""

    servers: list[ServerSyncResponse]
    items: int = Field(description="Number of items in the catalogue.")
    classified: int
    refined: int
    waiting: int = Field(description="Number of items that still wait for a skill.")
