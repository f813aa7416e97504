"""JSON, also with comments and trailing commas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolscript.configuration.formats.file_format import KeyPath
from toolscript.configuration.jsonc import JsoncDocument, JsoncNode, parse_jsonc
from toolscript.configuration.jsonc_edit import (
    add_member,
    find_indent_unit,
    format_source,
    read_source,
    remove_member,
    set_values,
)


class JsonFormat:
    """Edits of JSON, which keep every layout."""

    def parse(self, text: str) -> JsoncDocument:
        return parse_jsonc(text)

    def read_entry(self, text: str, node: JsoncNode) -> str:
        return read_source(text, node)

    def remove(self, text: str, path: KeyPath) -> str:
        return remove_member(text, path)

    def add(self, text: str, path: KeyPath, value: Mapping[str, Any] | str) -> str:
        return add_member(text, path, format_source(value, find_indent_unit(text)))

    def restore(self, text: str, before: str, paths: Sequence[KeyPath]) -> str:
        root = parse_jsonc(before).root
        nodes = {path: root.find(*path) for path in paths}
        text = set_values(text, {path: read_source(before, node) for path, node in nodes.items() if node})
        for path in (path for path, node in nodes.items() if not node):
            text = remove_member(text, path)
        return text
