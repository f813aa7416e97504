"""Definitions in quarantine as JSON, with a readable difference from what is approved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from difflib import unified_diff
from typing import Annotated, Any, TypedDict

from toolscript.domain.agent_skills import get_body
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.quarantine import Pin, QuarantineCause, QuarantineState, make_visible
from toolscript.domain.tool_overrides import find_override
from toolscript.surfaces.json.definitions import TOOL_ID, format_time

FIELDS = [each.name for each in fields(Item) if each.name not in {"server", "type", "quarantine"}]


class QuarantinedResponse(TypedDict):
    """A definition in quarantine."""

    tool_id: Annotated[str, TOOL_ID]
    server: str
    type: ItemType | None
    cause: Annotated[
        QuarantineCause | None,
        "`changed` after it was approved, `new` on a known server, or `suspicious`: its text addresses the model.",
    ]
    reason: Annotated[str, "The same in words."]
    passage: Annotated[str | None, "The suspicious text, with invisible characters made visible."]
    state: Annotated[QuarantineState, "`rejected` if a person has decided against it."]
    since: Annotated[str, "When the definition was first seen."]
    has_approved: Annotated[bool, "Whether an earlier definition is approved: searches show that one."]


class QuarantineListResponse(TypedDict):
    """All definitions in quarantine."""

    tools: list[QuarantinedResponse]
    total: int


class FieldChangeResponse(TypedDict):
    """A field of a definition that is not what was approved."""

    field: str
    diff: Annotated[str, "In the unified format, with invisible characters made visible."]


class QuarantineDetailResponse(QuarantinedResponse):
    """A definition in quarantine, and how it differs from the approved one."""

    digest: str
    changes: list[FieldChangeResponse]
    override: Annotated[
        dict[str, Any] | None,
        "What the configuration changes of the tool, whatever its server offers: `tool` is the server's name for it. "
        "Values of hidden arguments are not shown.",
    ]


class DecisionResponse(TypedDict):
    """The definitions that a decision was written for."""

    tool_ids: list[str]


def build_quarantine_response(pins: Sequence[Pin]) -> QuarantineListResponse:
    """Builds the response of `GET /api/v1/quarantine`."""
    return {"tools": [_build_entry(pin) for pin in pins], "total": len(pins)}


def build_quarantined_response(pin: Pin) -> QuarantineDetailResponse:
    """Builds the response of `GET /api/v1/quarantine/{id}`: also the difference, field by field."""
    override = find_override(pin.offered) if pin.offered else None
    return {
        **_build_entry(pin),
        "digest": pin.offered.digest if pin.offered else "",
        "changes": _build_changes(pin),
        "override": {"tool": pin.offered.name, **override} if pin.offered and override is not None else None,
    }


def _build_entry(pin: Pin) -> QuarantinedResponse:
    return {
        "tool_id": pin.catalogue_id,
        "server": pin.server,
        "type": pin.offered.type if pin.offered else None,
        "cause": pin.cause,
        "reason": pin.reason,
        "passage": pin.passage or None,
        "state": pin.state,
        "since": format_time(pin.since),
        "has_approved": pin.approved is not None,
    }


def _build_changes(pin: Pin) -> list[FieldChangeResponse]:
    changes: list[FieldChangeResponse] = []
    is_tool = pin.offered is not None and pin.offered.type is ItemType.TOOL
    for name in FIELDS:
        if is_tool and name == "definition":  # the override
            continue
        old, new = ([] if item is None else _format_lines(_get(item, name)) for item in (pin.approved, pin.offered))
        if old != new:
            lines = list(unified_diff(old, new, "approved", "offered", lineterm=""))
            changes.append({"field": name, "diff": "\n".join(lines)})
    return changes


def _get(item: Item, field: str) -> Any:
    value = getattr(item, field)
    if field == "definition" and item.type is ItemType.AGENT_SKILL:
        return {**value, "body": get_body(item).splitlines()}  # as one line of JSON nobody would see what has changed
    return value


def _format_lines(value: Any) -> list[str]:
    """The value in lines, with keys in one order and invisible characters made visible."""
    if value is None or value == "":
        return []
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    return make_visible(text).splitlines()
