"""Cuts JSON into chunks for a search, each with its path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolscript.retrieval.text.json_paths import Path
from toolscript.retrieval.text.pages import count_bytes, split_text

# Each level is written as JSON once, which takes 40 ms for 5 MB: what lies deeper is cut as text.
_MAX_DEPTH = 12
_encoder = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A part of a value: where the value is, and where in its text the part begins."""

    text: str
    path: Path = ()
    start: int = 0


def chunk_text(text: str, max_bytes: int, path: Path = ()) -> Iterator[TextChunk]:
    """The chunks of a text, in order."""
    for start, end in split_text(text, max_bytes):
        yield TextChunk(text[start:end], path, start)


def chunk_json(value: Any, max_bytes: int) -> Iterator[TextChunk]:
    """The chunks of a JSON value, in order. Elements of more than a quarter of `max_bytes` are chunks of their own;
    smaller elements share a chunk, an array's under a path like `items.10:20`."""
    yield from _chunk(value, write_json(value), (), max_bytes)


def write_json(value: Any) -> str:
    """The JSON of a value, with letters of every script as they are."""
    return _encoder.encode(value)


def _chunk(value: Any, text: str, path: Path, max_bytes: int) -> Iterator[TextChunk]:
    if isinstance(value, str):
        yield from chunk_text(value, max_bytes, path)
    elif len(path) >= _MAX_DEPTH or not isinstance(value, dict | list) or count_bytes(text) <= max_bytes:
        yield from chunk_text(text, max_bytes, path)
    else:
        group = _SmallElements(path, is_array=isinstance(value, list))
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            child_text = write_json(child)
            size = count_bytes(child_text)
            is_small = size <= max_bytes // 4
            if not is_small or group.bytes + size > max_bytes:
                yield from group.flush()
            if is_small:
                group.add(key, child_text, size)
            else:
                yield from _chunk(child, child_text, (*path, key), max_bytes)
        yield from group.flush()


class _SmallElements:
    """Consecutive small elements of an object or array."""

    def __init__(self, path: Path, *, is_array: bool) -> None:
        self._path = path
        self._is_array = is_array
        self._keys: list[Any] = []
        self._texts: list[str] = []
        self.bytes = 0

    def add(self, key: str | int, text: str, size: int) -> None:
        self._keys.append(key)
        self._texts.append(text)
        self.bytes += size + len(", ") + (0 if isinstance(key, int) else count_bytes(key))

    def flush(self) -> Iterator[TextChunk]:
        """The elements as one chunk, if there are any; then the group is empty."""
        if not self._keys:
            return
        path, texts = self._path, self._texts
        if len(texts) == 1:
            path = (*path, self._keys[0])
        elif self._is_array:
            path = (*path, f"{self._keys[0]}:{self._keys[-1] + 1}")
        else:
            texts = [f"{write_json(key)}: {text}" for key, text in zip(self._keys, texts, strict=True)]
        yield TextChunk(", ".join(texts), path)
        self._keys, self._texts, self.bytes = [], [], 0
