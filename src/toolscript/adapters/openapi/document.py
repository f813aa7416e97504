"""Reads an OpenAPI or Swagger document, in JSON or YAML, and follows its references.

References lead nowhere but into the document itself: a document names no file and no address that is then read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import yaml

MAX_REFERENCES = 50
VERSIONS = "swagger 2.0, or openapi 3.0 or 3.1"
_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}


class BadDocument(ValueError):
    """A document that cannot be used: what is wrong, where, and what is allowed."""


class ApiDocument:
    """A document of a known version. `problems` has what was left out of it, each with its place."""

    def __init__(self, root: dict[str, Any]) -> None:
        """Raises BadDocument."""
        self.root = root
        self.problems: list[str] = []
        self.is_swagger = "swagger" in root
        if not self.is_swagger and "openapi" not in root:
            found = ", ".join(sorted(str(key) for key in root)[:8]) or "none"
            raise BadDocument(f"not an OpenAPI document: it has no key `openapi` or `swagger` (its keys: {found})")
        key = "swagger" if self.is_swagger else "openapi"
        self.version = str(root[key])
        if not self.version.startswith("2" if self.is_swagger else "3"):
            raise BadDocument(f"/{key}: version {self.version[:20]!r} is not supported: use {VERSIONS}")
        paths = root.get("paths", {})
        if not isinstance(paths, dict):
            raise BadDocument(f"/paths: must be an object of operations by path, not {describe_kind(paths)}")
        self.paths: dict[str, Any] = paths

    def follow(self, value: Any, place: str) -> Any:
        """The value at the end of its references. None, with a problem, for a reference that leads nowhere."""
        for _ in range(MAX_REFERENCES):
            if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
                return value
            value = self.find(value["$ref"], place)
        self.note(place, "a circle of references")
        return None

    def find(self, reference: str, place: str) -> Any:
        """What one reference leads to; None, with a problem, if there is nothing."""
        if not reference.startswith("#"):
            self.note(place, f"refers to another document ({reference[:80]}): bundle both into one")
            return None
        found: Any = self.root
        for word in split_pointer(reference):
            if isinstance(found, list) and word.isdecimal() and int(word) < len(found):
                found = found[int(word)]
            else:
                found = found.get(word) if isinstance(found, dict) else None
        if found is None:
            self.note(place, f"the reference {reference[:80]} leads nowhere")
        return found

    def note(self, place: str, problem: str) -> None:
        """Records a problem with a part of the document."""
        self.problems.append(f"{place}: {problem}")


def parse_document(data: bytes) -> ApiDocument:
    """Reads a document. Raises BadDocument with the line, or the JSON pointer, of what is wrong."""
    try:
        text = data.decode("utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadDocument(f"not valid UTF-8 (line {data.count(10, 0, error.start) + 1})") from None
    try:
        root = json.loads(text) if text.lstrip()[:1] in {"{", "["} else yaml.load(text, _DocumentLoader)  # noqa: S506
    except json.JSONDecodeError as error:
        raise BadDocument(f"not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise BadDocument(f"not valid YAML: {error.problem or error.context}{place}") from None
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError) as error:
        raise BadDocument(f"not valid JSON or YAML: {str(error)[:200]}") from None
    except RecursionError:
        raise BadDocument("nested too deeply") from None
    if not isinstance(root, dict):
        raise BadDocument(f"must be an object with `openapi` or `swagger`, not {describe_kind(root)}")
    return ApiDocument(root)


def split_pointer(reference: str) -> list[str]:
    """The words of a JSON pointer in a fragment."""
    words = reference.removeprefix("#").split("/")[1:]
    return [unquote(word).replace("~1", "/").replace("~0", "~") for word in words]


def point_to(*words: str) -> str:
    """The JSON pointer to a place."""
    return "".join(f"/{word.replace('~', '~0').replace('/', '~1')}" for word in words)


def describe_kind(value: object) -> str:
    """The JSON type of a value, for messages."""
    return _KINDS.get(type(value), "a number")


class _DocumentLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.2's scalars, as OpenAPI wants them: no dates, no `yes` and `no`. Keys are strings."""

    yaml_implicit_resolvers: Mapping[str, Any] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(None, None, "expected a mapping", node.start_mark)
        self.flatten_mapping(node)
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a string", key.start_mark)
        return {str(key.value): self.construct_object(value, deep=deep) for key, value in node.value}


for _tag, _pattern, _first in (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", "<<", "<"),
):
    _DocumentLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first))
