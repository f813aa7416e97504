"""Completion of tool ids, server names and skill ids in a shell, from the store in the data folder or from a gateway.

It starts nothing, and offers nothing when something is wrong: a shell has no place for an error message.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from toolscript.domain.limits import current_limits
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.cli.terminal.options import OVERRIDES
from toolscript.surfaces.cli.terminal.text import printable

MAX_HELP_CHARACTERS = 80
# Shells insert a completion as it is: a server must not choose a name that a shell would execute.
_SAFE_NAME = re.compile(r"\w[\w.@+/-]*")
# For each kind of names: the gateway's path, the list in its response, the keys of a name and its description.
_PATHS = {
    "tools": ("/tools", "tools", "toolId", "description"),
    "servers": ("/servers", "servers", "name", "state"),
    "skills": ("/api/v1/skills", "skills", "id", "name"),
}

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete(*kinds: str, separator: str | None = None) -> Completer:
    """Completes names of these kinds; with a separator, the last name of a list."""

    def find(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, found, start = incomplete.rpartition(separator) if separator else ("", "", incomplete)
        names: dict[str, str] = {}
        try:
            settings = load_settings(**context.meta.get(OVERRIDES, {}))
            for kind in kinds:
                names |= _list_names(settings, kind)
        except Exception:  # noqa: BLE001
            return []
        return [
            CompletionItem(before + found + name, help=printable(names[name].partition("\n")[0])[:MAX_HELP_CHARACTERS])
            for name in sorted(names)
            if name.startswith(start) and _SAFE_NAME.fullmatch(name)
        ]

    return find


def _list_names(settings: Settings, kind: str) -> dict[str, str]:
    from toolscript.app.names import read_stored_names

    names = {} if settings.gateway_url else read_stored_names(settings, kind)
    return names or _request_names(settings, kind)


def _request_names(settings: Settings, kind: str) -> dict[str, str]:
    from toolscript.surfaces.cli.client.gateway import send_to_gateway

    path, rows, key, about = _PATHS[kind]
    seconds = current_limits().completion
    response: dict[str, list[dict[str, Any]]] = send_to_gateway(settings, path, timeout_seconds=seconds) or {}
    return {str(row[key]): str(row.get(about) or "") for row in response.get(rows, ())}
