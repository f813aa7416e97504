"""The tools, prompts, resources and agent skills of many servers, and the skills they are sorted into."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any

Schema = Mapping[str, Any]
# The input schema, output schema and annotations of one item.
Schemas = tuple[Schema | None, Schema | None, Schema | None]


class ItemType(StrEnum):
    """The kinds of items that servers offer."""

    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"
    AGENT_SKILL = "agent_skill"
    """A folder with a `SKILL.md`; a `Skill` is a group of items."""


# The skills of an item.
MAX_SKILLS = 3


@dataclass(frozen=True, slots=True)
class Item:
    """A tool, prompt, resource or agent skill, as its server describes it."""

    server: str
    name: str
    description: str = ""
    type: ItemType = ItemType.TOOL
    title: str | None = None
    input_schema: Schema | None = None
    output_schema: Schema | None = None
    annotations: Schema | None = None
    definition: Schema | None = None
    """A prompt or resource as the server lists it: the native lists pass it on, with what no other field has. Of an
    agent skill: its files with their digests, and the text of its `SKILL.md`."""
    quarantine: str = ""
    """Why it must not be used until a person approves it; empty if it may. No server states this."""

    @property
    def id(self) -> str:
        """`server__tool`, or `server__prompt:name`: items of other types may have the same name as a tool."""
        return (
            f"{self.server}__{self.name}" if self.type is ItemType.TOOL else f"{self.server}__{self.type}:{self.name}"
        )

    @property
    def digest(self) -> str:
        """A hash of everything that the server states about the item, and of its quarantine."""
        return _hash([self.server, *self._content])

    @property
    def content_digest(self) -> str:
        """A hash of the same without the server: equal for copies of one server."""
        return _hash(self._content)

    @property
    def _content(self) -> list[Any]:
        texts = [self.type.value, self.name, self.title, self.description]
        parts = [*texts, self.input_schema, self.output_schema, self.annotations]
        parts += [] if self.definition is None else [self.definition]
        return [*parts, {"quarantine": self.quarantine}] if self.quarantine else parts

    @property
    def listed_name(self) -> str:
        """The name that its server gave it: of two resources with the same name, one is named by its URI here."""
        return str((self.definition or {}).get("name", self.name))

    @property
    def is_read_only(self) -> bool:
        """Whether its server says that it changes nothing. Items of other types never do."""
        return self.type is not ItemType.TOOL or (self.annotations or {}).get("readOnlyHint") is True

    @property
    def parameters(self) -> list[str]:
        """The names of the input schema's top-level properties."""
        properties = (self.input_schema or {}).get("properties")
        return [str(name) for name in properties] if isinstance(properties, Mapping) else []


def _hash(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def get_server(item_id: str) -> str:
    """The name of an item's server. A server's name has no "__"."""
    return item_id.partition("__")[0]


def select_items(items: Iterable[Item], filter: str | None) -> list[Item]:  # noqa: A002 its name on every surface
    """Returns the items that a comma-separated list names, each once, sorted by id; without a list all items.

    An entry is the id of an item or the name of a server: `github,filesystem__read_file` is one server and one tool of
    another. Unknown entries select nothing.
    """
    by_id = {item.id: item for item in items}
    entries = {entry.strip() for entry in (filter or "").split(",")} - {""}
    wanted = [i for i, item in by_id.items() if not entries or i in entries or item.server in entries]
    return [by_id[i] for i in sorted(wanted)]


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item in the catalogue, with its number, its skills, and whether its server still offers it."""

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
    """The digest of the item that was last classified, and by which classifier; empty if none was."""
    type: ItemType = ItemType.TOOL


class Origin(StrEnum):
    """Who assigned an item to a skill."""

    LLM = "llm_auto"
    EMBEDDING = "embedding_auto"
    HUMAN = "human"


@dataclass(frozen=True, slots=True)
class Assignment:
    """An item's membership in a skill, with its confidence and origin."""

    skill_id: str
    confidence: float
    is_primary: bool = False
    origin: Origin = Origin.EMBEDDING


@dataclass(frozen=True, slots=True)
class SkillMember:
    """The part of a skill's active item that the skill's vectors depend on."""

    item_id: str
    digest: str
    confidence: float
    is_primary: bool = True


@dataclass(frozen=True, slots=True)
class Skill:
    """A category that people define and classifiers assign items to."""

    id: str
    name: str
    description: str = ""
    parent_domain: str | None = None
    keywords: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    is_active: bool = True


# dataclasses.astuple copies every value: 4 ms more for 40 skills.
get_skill_values = attrgetter(*(each.name for each in fields(Skill)))


def compute_skills_digest(skills: Sequence[Skill]) -> str:
    """Returns a hash of the skills."""
    return hashlib.sha256(json.dumps([get_skill_values(s) for s in skills]).encode()).hexdigest()


class SuggestionStatus(StrEnum):
    """The state of a suggested skill."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A skill that an item needed and that did not exist, or that somebody proposed. A person decides about it."""

    name: str
    description: str = ""
    source_item_id: str | None = None
    status: SuggestionStatus = SuggestionStatus.PENDING
    reviewed_by: str | None = None
    number: int | None = field(default=None, compare=False)
    keywords: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    item_ids: tuple[str, ...] = ()
    """The items that were chosen for it."""


@dataclass(frozen=True, slots=True)
class Classification:
    """A classifier's result for an item: one to three skills, the most confident first and primary; or none, and
    perhaps a suggestion for the missing skill."""

    assignments: tuple[Assignment, ...] = ()
    missing: Suggestion | None = None
    is_clear: bool = True
    """False if the classifier gave no usable answer; it would give none for this item and these skills again."""


UNCLEAR = Classification(is_clear=False)


@dataclass(frozen=True, slots=True)
class ClassificationRecord:
    """The result of a classification, as the store records it."""

    item_id: str
    stamp: str
    assignments: tuple[Assignment, ...] = ()
    suggestion: Suggestion | None = None
