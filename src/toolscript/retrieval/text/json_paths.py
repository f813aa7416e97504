"""Paths into JSON values, as agents write them: `items.3.name`, `items[3].name`, or a JSON pointer. And the shape of a
value: the paths that it has."""

from __future__ import annotations

import json
import re
from typing import Any

from toolscript.domain.errors import NotFound

Path = tuple[str | int, ...]

MAX_KEYS_SHOWN = 20
MAX_KEY_LENGTH = 60
MAX_STRING_UNSAID = 200
_MAX_DEPTH = 6
_SLICE = re.compile(r"(\d*):(\d*)")
_PLAIN_KEY = re.compile(r"[^.\[\]/\s]+")


def parse_path(path: str) -> Path:
    """The steps of a path as agents write it.

    >>> parse_path("$.items[3].name") == parse_path("/items/3/name") == parse_path("items.3.name")
    True
    """
    if path.startswith("/"):
        return tuple(step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/"))
    dotted = re.sub(r"\[[\"']?([^\]\"']*)[\"']?\]", r".\1", path.strip().removeprefix("$"))
    return tuple(step for step in dotted.split(".") if step)


def resolve_path(root: Any, path: Path) -> Any:
    """The value at a path. `items.10:20` is a part of an array, and a string with JSON is like that JSON. Raises
    NotFound, naming what exists instead."""
    value = root
    for at, step in enumerate(path):
        value = _take_step(value, str(step), format_path(path[:at]))
    return value


def format_path(path: Path) -> str:
    """The path as `resolve_path` takes it: with dots, or as a JSON pointer where a key needs that.

    >>> format_path(("items", 3, "name")), format_path(("a.b", "0:5"))
    ('items.3.name', '/a.b/0:5')
    """
    steps = [str(step) for step in path]
    if all(_PLAIN_KEY.fullmatch(step) for step in steps) and not (steps and steps[0].startswith("$")):
        return ".".join(steps)
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def _take_step(value: Any, step: str, place: str) -> Any:
    where = f"at {place}" if place else "at the top"
    if isinstance(value, str):
        value = parse_container(value) or value
    if isinstance(value, dict):
        if step in value:
            return value[step]
        raise NotFound(f"no {_clip(step)!r} {where}: there are {_list_keys(value)}", details={"path": place})
    if isinstance(value, list):
        if step.isdecimal() and int(step) < len(value):
            return value[int(step)]
        if bounds := _SLICE.fullmatch(step):
            return value[int(bounds[1] or 0) : int(bounds[2] or len(value))]
        allowed = f"has the elements 0 to {len(value) - 1}" if value else "is empty"
        raise NotFound(f"no {_clip(step)!r} {where}: the array there {allowed}", details={"path": place})
    kind = _name_kind(value)
    raise NotFound(f"no {_clip(step)!r} {where}: there is a {kind}, which has no parts", details={"path": place})


def parse_container(text: str) -> Any:
    """The object or array that the text is; else None."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _list_keys(value: dict[str, Any]) -> str:
    keys = [_clip(key) for key in list(value)[:MAX_KEYS_SHOWN]]
    more = f" and {len(value) - len(keys)} more" if len(value) > len(keys) else ""
    return (", ".join(keys) or "no keys") + more


def describe_shape(value: Any, max_length: int) -> str:
    """The keys of a value, the lengths of its arrays, and the types of the rest; as deep as the length allows.

    >>> describe_shape({"items": [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": []}], "total": 2}, 100)
    '{"items": [2 of {"id": number, "tags": [1 of string]}], "total": number}'
    """
    shapes = (_describe(value, depth) for depth in range(_MAX_DEPTH, -1, -1))
    return next((shape for shape in shapes if len(shape) <= max_length), _describe(value, 0))


def _describe(value: Any, depth: int) -> str:
    match value:
        case dict() if depth and value:
            parts = [
                f"{json.dumps(_clip(key), ensure_ascii=False)}: {_describe(member, depth - 1)}"
                for key, member in list(value.items())[:MAX_KEYS_SHOWN]
            ]
            more = len(value) - len(parts)
            return "{" + ", ".join([*parts, f"… {more} more keys"] if more else parts) + "}"
        case list() if depth and value:
            return f"[{len(value)} of {_describe(value[0], depth - 1)}]"
        case dict():
            return f"{{{len(value)} keys}}" if value else "{}"
        case list():
            return f"[{len(value)} elements]" if value else "[]"
        case str() if len(value) > MAX_STRING_UNSAID:
            return f"string of {len(value)} characters"
        case _:
            return _name_kind(value)


def _name_kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    return "string" if isinstance(value, str) else "number"


def _clip(key: str) -> str:
    return key if len(key) <= MAX_KEY_LENGTH else f"{key[: MAX_KEY_LENGTH - 1]}…"
