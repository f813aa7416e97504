"""The tools, prompts and resources of many servers, and the skills they are sorted into."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from typing import Any

Schema = Mapping[str, Any]
# Of one item: the schemas of its arguments and of its answer, and its annotations.
Schemas = tuple[Schema | None, Schema | None, Schema | None]


class ItemType(StrEnum):
    """What an MCP server offers."""

    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing a server offers, as the server describes it."""

    server: str
    name: str
    description: str = ""
    type: ItemType = ItemType.TOOL
    title: str | None = None
    input_schema: Schema | None = None
    output_schema: Schema | None = None
    annotations: Schema | None = None

    @property
    def id(self) -> str:
        """`server__tool`; a prompt or resource says so, because it may share its name with a tool."""
        return (
            f"{self.server}__{self.name}" if self.type is ItemType.TOOL else f"{self.server}__{self.type}:{self.name}"
        )

    @property
    def digest(self) -> str:
        """Changes exactly when what the server says of the item changes."""
        named = [self.server, self.type.value, self.name, self.title, self.description]
        said = [*named, self.input_schema, self.output_schema, self.annotations]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    @property
    def parameters(self) -> list[str]:
        """The names of the input schema's top-level properties."""
        properties = (self.input_schema or {}).get("properties")
        return [str(name) for name in properties] if isinstance(properties, Mapping) else []


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as the catalogue keeps it: with its number, whether its server still offers it, its skills."""

    number: int
    item: Item
    terms: frozenset[int]
    is_active: bool = True
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemFingerprint:
    """What a sync compares of a stored item, without its texts and schemas."""

    id: str
    server: str
    number: int
    digest: str
    is_active: bool
    assignments: tuple[Assignment, ...] = ()
    classified: str = ""
    """Which digest of the item was last sorted into skills, and by whom; empty when none was."""


class Origin(StrEnum):
    """Who sorted an item into a skill."""

    LLM = "llm_auto"
    EMBEDDING = "embedding_auto"
    HUMAN = "human"


@dataclass(frozen=True, slots=True)
class Assignment:
    """An item belongs to a skill, how surely, and who said so."""

    skill_id: str
    confidence: float
    is_primary: bool = False
    origin: Origin = Origin.EMBEDDING


@dataclass(frozen=True, slots=True)
class SkillMember:
    """An active item of a skill, as far as the skill's vectors depend on it."""

    item_id: str
    digest: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Skill:
    """A category that people define and classifiers sort items into."""

    id: str
    name: str
    description: str = ""
    parent_domain: str | None = None
    keywords: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    is_active: bool = True


def compute_skills_digest(skills: Sequence[Skill]) -> str:
    """Changes exactly when the skills do."""
    return hashlib.sha256(json.dumps([astuple(s) for s in skills]).encode()).hexdigest()


class SuggestionStatus(StrEnum):
    """Where a suggested skill stands."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A skill that did not exist when an item needed one; a person decides."""

    name: str
    description: str = ""
    source_item_id: str | None = None
    status: SuggestionStatus = SuggestionStatus.PENDING
    reviewed_by: str | None = None
    number: int | None = field(default=None, compare=False)
    keywords: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Classification:
    """What a classifier says of an item: one to three skills, surest first and that one primary; or none, and perhaps
    the skill that it would need."""

    assignments: tuple[Assignment, ...] = ()
    missing: Suggestion | None = None
    is_clear: bool = True
    """False where the classifier was asked and said nothing usable: of this item among these skills it will not."""


UNCLEAR = Classification(is_clear=False)


@dataclass(frozen=True, slots=True)
class ClassificationRecord:
    """What is recorded of an item that has been classified."""

    item_id: str
    stamp: str
    assignments: tuple[Assignment, ...] = ()
    suggestion: Suggestion | None = None
