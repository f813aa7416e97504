"""Requests about skills, and about the sync that classifies tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StringConstraints

from toolscript.domain.catalog import MAX_SKILLS, Skill
from toolscript.services.skills.proposals import MAX_PROPOSALS
from toolscript.services.skills.skills import (
    MAX_CHOSEN,
    MAX_DESCRIPTION_LENGTH,
    MAX_ID_LENGTH,
    MAX_NAME_LENGTH,
    MAX_WORD_LENGTH,
    MAX_WORDS,
)
from toolscript.surfaces.http.schemas.models import ONE_LINE, RequestModel

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
