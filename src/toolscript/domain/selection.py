"""Selects items by a comma-separated list: `github,filesystem__read_file` is one server and one tool of another."""

from __future__ import annotations

from collections.abc import Iterable

from toolscript.domain.catalog import Item


def select_items(items: Iterable[Item], filter: str | None) -> list[Item]:  # noqa: A002 its name on every surface
    """Returns the items that the list names, each once, sorted by id; without a list all items.

    An entry is the id of an item or the name of a server. Unknown entries select nothing.
    """
    by_id = {item.id: item for item in items}
    entries = {entry.strip() for entry in (filter or "").split(",")} - {""}
    wanted = [i for i, item in by_id.items() if not entries or i in entries or item.server in entries]
    return [by_id[i] for i in sorted(wanted)]
