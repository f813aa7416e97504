"""Definitions of items that must not be used until a person has approved them, and what a person has approved."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Quarantined
from toolscript.domain.tool_overrides import find_override, get_catalogue_id


class QuarantineCause(StrEnum):
    """Why a definition is in quarantine."""

    CHANGED = "changed"
    NEW = "new"
    SUSPICIOUS = "suspicious"


class QuarantineState(StrEnum):
    """What a person has decided about a definition in quarantine. An approved one is no longer there."""

    WAITING = "waiting"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Finding:
    """A passage of a definition that addresses the model, or hides something from the reader."""

    where: str
    """The field, such as `description` or `input_schema.properties.path.description`."""
    passage: str
    """The text, with invisible characters made visible."""
    reason: str
    """What it does, as the rest of a sentence that begins with the field."""

    def describe(self) -> str:
        """The field and what it does, as the reason of a quarantine."""
        return f"its {self.where.replace('_', ' ')} {self.reason}"


def get_pin_id(item: Item) -> str:
    """The id of the item in the catalogue while it is in quarantine, without invisible characters."""
    return item.id if item.name.isprintable() else replace(item, name=make_visible(item.name, keep="")).id


@dataclass(frozen=True, slots=True)
class Pin:
    """What is approved of an item, and what its server offers instead, if that is in quarantine. Both are definitions
    of the server, with the override of the configuration beside them."""

    item_id: str
    """The server's name and its own name for the item: the id in the catalogue unless the configuration renames it."""
    server: str
    approved: Item | None = None
    """None for an item that was never approved."""
    offered: Item | None = None
    """The definition in quarantine; None if there is none."""
    cause: QuarantineCause | None = None
    reason: str = ""
    passage: str = ""
    state: QuarantineState = QuarantineState.WAITING
    since: float = 0.0
    """When the offered definition was first seen, in seconds since 1970."""
    awaits_review: bool = False
    """Whether only the rules have looked at the approved definition: a language model reads it next, where there is
    one."""

    @property
    def catalogue_id(self) -> str:
        """The id in the catalogue, as people see it."""
        item = self.offered or self.approved
        return get_catalogue_id(item) if item and find_override(item) else self.item_id

    def with_override(self, item: Item) -> Pin:
        """The pin with the override of this definition: a person approves what servers write, and operators need no
        approval for what they configure."""
        if item.type is not ItemType.TOOL:
            return self
        approved, offered = (
            each and replace(each, definition=item.definition) for each in (self.approved, self.offered)
        )
        return replace(self, approved=approved, offered=offered)

    @property
    def shown(self) -> Item | None:
        """The server's definition that counts: the approved one where there is one, never the one in quarantine."""
        if self.offered is None:
            return self.approved
        reason = "a person rejected it" if self.state is QuarantineState.REJECTED else self.reason
        if self.approved is not None:
            return replace(self.approved, quarantine=reason)
        name = make_visible(self.offered.name, keep="")
        # The addresses of resources tell requests for them apart.
        about = {k: v for k, v in (self.offered.annotations or {}).items() if k in {"uri", "uriTemplate"}}
        unknown = Item(self.server, name, type=self.offered.type, input_schema={"type": "object"}, quarantine=reason)
        override = self.offered.definition if self.offered.type is ItemType.TOOL else None
        return replace(unknown, annotations=about or None, definition=override)


def require_released(item: Item) -> None:
    """Raises Quarantined for an item in quarantine."""
    if item.quarantine:
        name = shlex.quote(item.id)
        raise Quarantined(
            f"{item.id} is in quarantine and cannot be used: {item.quarantine}; `toolscript quarantine show {name}` "
            f"shows it, and `toolscript quarantine approve {name}` releases it",
            details={"tool": item.id, "server": item.server, "reason": item.quarantine},
        )


# Lists in schemas whose order means nothing, and that some servers write in another order at every start.
_UNORDERED = frozenset({"required", "enum", "type"})
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DATES = re.compile(
    r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    r"|\b\d{1,2}:\d{2}(?::\d{2})?\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
    rf"|\b\d{{1,2}}\.? (?:{_MONTHS})[a-z]{{0,6}}\.?,? \d{{4}}\b|\b(?:{_MONTHS})[a-z]{{0,6}}\.? \d{{1,2}},? \d{{4}}\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b",
    re.IGNORECASE,
)


def find_changes(approved: Item, offered: Item, *, exact: bool) -> list[str]:
    """The fields that differ between two definitions. The order of keys and of sets does not count; unless `exact`,
    neither do dates and times: servers write today's into their texts."""
    names = [each.name for each in fields(Item) if each.name not in {"server", "type", "quarantine"}]
    # Of a tool, it is the override. Earlier versions did not store it.
    if offered.type is ItemType.TOOL or approved.definition is None or offered.definition is None:
        names.remove("definition")
    return [
        name
        for name in names
        if _normalize(getattr(approved, name), exact=exact) != _normalize(getattr(offered, name), exact=exact)
    ]


def _normalize(value: Any, *, exact: bool, key: str = "") -> Any:
    match value:
        case str():
            return value.strip() if exact else _DATES.sub("(date)", value).strip()
        case Mapping():
            return {k: _normalize(each, exact=exact, key=str(k)) for k, each in value.items()}
        case list() | tuple():
            values = [_normalize(each, exact=exact) for each in value]
            return sorted(values, key=lambda each: json.dumps(each, sort_keys=True)) if key in _UNORDERED else values
        case None:
            return ""
        case _:
            return repr(value)  # true is not 1


def describe_definition(item: Item) -> dict[str, Any]:
    """The definition as JSON, as stores keep it."""
    return {each.name: getattr(item, each.name) for each in fields(Item) if each.name not in {"quarantine", "type"}} | {
        "type": item.type.value
    }


def parse_definition(stored: Mapping[str, Any]) -> Item:
    names = {each.name for each in fields(Item)}
    return Item(**{k: v for k, v in stored.items() if k in names} | {"type": ItemType(stored["type"])})


def make_visible(text: str, *, keep: str = "\n\t") -> str:
    """The text with characters that cannot be seen, or that control a terminal, written as `\\u200b`."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def list_fields(names: Sequence[str]) -> str:
    """`description and input schema`, for messages."""
    words = [name.replace("_", " ") for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
