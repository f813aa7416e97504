"""What `setup` needs of a format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolscript.configuration.jsonc import JsoncDocument, JsoncNode, Value

KeyPath = tuple[str, ...]


class FileFormat(Protocol):
    """Reads a text as a tree, and edits members of its tables. An edit that the text's layout does not allow may return
    another text than expected, never raise: callers compare what the new text says."""

    def parse(self, text: str) -> JsoncDocument:
        """Reads the text. Raises JsoncError."""

    def read_entry(self, text: str, node: JsoncNode) -> str:
        """The source of a value in JSON."""

    def remove(self, text: str, path: KeyPath) -> str:
        """The text without a member."""

    def add(self, text: str, path: KeyPath, value: Any) -> str:
        """The text with a new member at the end of its table."""

    def restore(self, text: str, before: str, paths: Sequence[KeyPath]) -> str:
        """The text with the tables that an earlier text has at these paths."""


def build_node(value: Any, name: str | int = "", parent: JsoncNode | None = None) -> JsoncNode:
    """A tree of values without positions."""
    node = JsoncNode(1, name, parent)
    node.value = _build_value(value, node)
    return node


def _build_value(value: Any, node: JsoncNode) -> Value:
    if isinstance(value, Mapping):
        return {str(key): build_node(each, str(key), node) for key, each in value.items()}
    if isinstance(value, list):
        return [build_node(each, index, node) for index, each in enumerate(value)]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
