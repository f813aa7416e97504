"""Definitions in quarantine as JSON, with a readable difference from what is approved."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from toolscript.domain.catalog import Item
from toolscript.domain.quarantine import make_visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolscript.domain.quarantine import Pin

FIELDS = [each.name for each in fields(Item) if each.name not in {"server", "type", "quarantine"}]


def build_quarantine_response(pins: Sequence[Pin]) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/quarantine`."""
    return {"tools": [_build_entry(pin) for pin in pins], "total": len(pins)}


def build_quarantined_response(pin: Pin) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/quarantine/{id}`: also the difference, field by field."""
    return {**_build_entry(pin), "digest": pin.offered.digest if pin.offered else "", "changes": _build_changes(pin)}


def _build_entry(pin: Pin) -> dict[str, Any]:
    since = datetime.fromtimestamp(pin.since, UTC).isoformat(timespec="seconds")
    return {
        "tool_id": pin.item_id,
        "server": pin.server,
        "type": pin.offered.type.value if pin.offered else None,
        "cause": pin.cause,
        "reason": pin.reason,
        "passage": pin.passage or None,
        "state": pin.state.value,
        "since": since,
        "has_approved": pin.approved is not None,
    }


def _build_changes(pin: Pin) -> list[dict[str, Any]]:
    changes = []
    for name in FIELDS:
        old, new = ([] if item is None else _format_lines(getattr(item, name)) for item in (pin.approved, pin.offered))
        if old != new:
            lines = list(unified_diff(old, new, "approved", "offered", lineterm=""))
            changes.append({"field": name, "diff": "\n".join(lines)})
    return changes


def _format_lines(value: Any) -> list[str]:
    """The value in lines, with keys in one order and invisible characters made visible."""
    if value is None or value == "":
        return []
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
    return make_visible(text).splitlines()
