"""YAML, as Goose and Continue have it: a server takes lines of its own. Servers in one line cannot be edited."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from toolscript.configuration.formats.file_format import KeyPath
from toolscript.configuration.jsonc import JsoncDocument, JsoncError, JsoncNode

# Continue has a list of servers, each with its name. It is read as a table by name.
NAMED_LIST = "mcpServers"
UNIT = "  "


class YamlFormat:
    """Edits of whole lines."""

    def parse(self, text: str) -> JsoncDocument:
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            repeated: list[tuple[JsoncNode, int]] = []
            if root is None:
                return JsoncDocument(JsoncNode(1), repeated)
            return JsoncDocument(_TreeBuilder(text, loader, repeated).build(root), repeated)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise JsoncError(error.problem or "not valid YAML", line, column, "") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise JsoncError("not valid YAML", 1, 1, "") from error
        finally:
            loader.dispose()

    def read_entry(self, text: str, node: JsoncNode) -> str:  # noqa: ARG002  (other formats need the text)
        return json.dumps(node.to_python(), ensure_ascii=False)

    def remove(self, text: str, path: KeyPath) -> str:
        node = self.parse(text).root.find(*path)
        if node is None or node.parent is None or text[node.parent.start] in "{[":
            return text
        if node.parent.value == {node.name: node} and node.parent.parent:
            empty = " []" if node.parent.name == NAMED_LIST else " {}"
            key_end = text.index(":", node.parent.key_start) + 1
            text = text[:key_end] + empty + text[key_end:]
            start, end = node.key_start + len(empty), node.end + len(empty)
        else:
            start, end = node.key_start, node.end
        return text[: _find_line(text, start)] + text[_find_next_line(text, end) :]

    def add(self, text: str, path: KeyPath, value: Mapping[str, Any]) -> str:
        *above, name = path
        root = self.parse(text).root
        parent = root.find(*above)
        newline = "\r\n" if "\r\n" in text else "\n"
        if parent is None:
            head = text if not text or text.endswith("\n") else text + newline
            return self.add(f"{head}{above[-1]}:{newline}", path, value) if len(above) == 1 else text
        siblings = list(parent.value.values()) if isinstance(parent.value, dict) else []
        if siblings:
            first = siblings[0].key_start
            indent = text[_find_line(text, first) : first]
            at = _find_next_line(text, siblings[-1].end)
            head = text[:at] if text[:at].endswith("\n") else text[:at] + newline
        else:
            indent = text[_find_line(text, parent.key_start) : parent.key_start] + UNIT
            at = _find_next_line(text, parent.end)
            head = text[: parent.start].rstrip() + newline
        is_list = parent.name == NAMED_LIST
        members = [
            f"{key}: {json.dumps(each, ensure_ascii=False)}"
            for key, each in value.items()
            if key != "name" or not is_list
        ]
        lines = [f"- name: {name}" if is_list else f"{_format_key(name)}:", *(UNIT + member for member in members)]
        return head + "".join(f"{indent}{line}{newline}" for line in lines) + text[at:]

    def restore(self, text: str, before: str, paths: Sequence[KeyPath]) -> str:
        for path in paths:
            new, old = self.parse(text).root.find(*path), self.parse(before).root.find(*path)
            block = before[_find_line(before, old.key_start) : _find_next_line(before, old.end)] if old else ""
            start = _find_line(text, new.key_start) if new else len(text)
            text = text[:start] + block + (text[_find_next_line(text, new.end) :] if new else "")
        return text


class _TreeBuilder:
    def __init__(self, text: str, loader: yaml.SafeLoader, repeated: list[tuple[JsoncNode, int]]) -> None:
        self._text, self._loader, self._repeated = text, loader, repeated

    def build(self, source: yaml.Node, name: str | int = "", parent: JsoncNode | None = None) -> JsoncNode:
        line, start = source.start_mark.line + 1, source.start_mark.index
        node = JsoncNode(line, name, parent, key_start=start, start=start)
        if isinstance(source, yaml.MappingNode):
            members = [(key.start_mark.index, str(key.value), each) for key, each in source.value]
            node.value = self._build_members(members, node)
        elif isinstance(source, yaml.SequenceNode) and name == NAMED_LIST:
            named = [(self._text.rfind("-", 0, each.start_mark.index), _find_name(each), each) for each in source.value]
            node.value = self._build_members(named, node)
        elif isinstance(source, yaml.SequenceNode):
            node.value = [self.build(each, index, node) for index, each in enumerate(source.value)]
        else:
            value = self._loader.construct_object(source)
            node.value = value if value is None or isinstance(value, bool | int | float | str) else str(value)
        # The end of a block is that of its last line, not the begin of what follows it.
        is_block = not isinstance(source, yaml.ScalarNode) and not source.flow_style
        children = list(node.value.values()) if isinstance(node.value, dict) else node.value
        if is_block and isinstance(children, list) and children:
            node.end = max(child.end for child in children)
        else:
            node.end = start + len(self._text[start : source.end_mark.index].rstrip())
        return node

    def _build_members(self, members: Sequence[tuple[int, str, yaml.Node]], parent: JsoncNode) -> dict[str, JsoncNode]:
        built: dict[str, JsoncNode] = {}
        for key_start, key, source in members:
            member = self.build(source, key, parent)
            member.key_start = key_start
            if key in built:
                self._repeated.append((built[key], member.line))
            built[key] = member
        return built


def _find_name(source: yaml.Node) -> str:
    pairs = source.value if isinstance(source, yaml.MappingNode) else []
    return next((str(each.value) for key, each in pairs if key.value == "name"), "")


def _find_line(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def _find_next_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def _format_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z][\w-]*", key) else json.dumps(key, ensure_ascii=False)
