"""Which items a filter names: `github,filesystem__read_file` is a whole server and one tool of another."""

from __future__ import annotations

from collections.abc import Iterable

from toolscript.domain.catalog import Item


def select_items(items: Iterable[Item], filter: str | None) -> list[Item]:  # noqa: A002 the name it has on every surface
    """The items that a comma list names, each once, by id; all of them for no list.

    An entry with `__` is the id of one item, any other is a server. What nothing is called selects nothing.
    """
    by_id = {item.id: item for item in items}
    entries = {entry.strip() for entry in (filter or "").split(",")} - {""}
    wanted = [i for i, item in by_id.items() if not entries or i in entries or item.server in entries]
    return [by_id[i] for i in sorted(wanted)]
