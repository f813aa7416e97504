"""Reads and writes the override of one tool in the file that has its server's entry. The rest of the file stays as it
is, with its comments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolscript.configuration.files import list_files, parse_entry
from toolscript.configuration.jsonc import parse_jsonc
from toolscript.configuration.jsonc_edit import find_indent_unit, format_source, read_source, remove_member, set_values
from toolscript.configuration.snippets import SERVER_LISTS, ConfigurationPlace, check_files, replace_text
from toolscript.configuration.text_files import read_text
from toolscript.domain.errors import NotFound

KEY = "tools"


@dataclass(frozen=True, slots=True)
class WrittenOverride:
    """The override of a tool as its file has it."""

    file: Path
    override: Mapping[str, Any]
    """With its variables, not their values; empty if there is none."""


def read_override(place: ConfigurationPlace, server: str, tool: str) -> WrittenOverride:
    """The override of the server's tool of that name. Raises NotFound for a server that no file names, and Invalid for
    a configuration that has errors."""
    file, text, path = _find_entry(place, server)
    node = parse_jsonc(text).root.find(*path, KEY, tool)
    override = node.to_python() if node else None
    return WrittenOverride(file, override if isinstance(override, dict) else {})


def write_override(place: ConfigurationPlace, server: str, tool: str, override: Mapping[str, Any]) -> WrittenOverride:
    """Writes the override, or removes it if it is empty. Raises what `read_override` raises, Invalid for an override
    that the file must not have, Conflict when the file changes meanwhile, and Unavailable when it cannot be written."""
    file, before, path = _find_entry(place, server)
    place_of_tool = (*path, KEY, tool)
    if override:
        after = set_values(before, {place_of_tool: format_source(override, find_indent_unit(before))})
    else:
        after = remove_member(before, place_of_tool)
    entry = parse_jsonc(after).root.find(*path)
    if entry is not None:
        parse_entry(server, read_source(after, entry), file=file, home=place.home, environment=place.environment)
    replace_text(file, before, after)
    return WrittenOverride(file, override)


def _find_entry(place: ConfigurationPlace, server: str) -> tuple[Path, str, tuple[str, ...]]:
    """The file that counts for the server, its text, and the keys that lead to the entry."""
    check_files(place)
    for file in reversed(list_files(place.config, home=place.home, folder=place.folder)):
        text = read_text(file)
        root = parse_jsonc(text).root if text is not None else None
        for path in SERVER_LISTS if root else ():
            node = root.find(*path) if root else None
            for key in node.value if node and isinstance(node.value, dict) else ():
                if text is not None and server == (key if path == SERVER_LISTS[0] else key.replace("/", "-")):
                    return file, text, (*path, key)
    raise NotFound(f"no configuration file names the server {server!r}", details={"server": server})
