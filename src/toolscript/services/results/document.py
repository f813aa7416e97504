"""A result as one text, and as JSON where it is JSON: what is paged, searched and kept."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolscript.domain.errors import Invalid
from toolscript.retrieval.text.json_chunks import write_json
from toolscript.retrieval.text.json_paths import parse_container, parse_path, resolve_path
from toolscript.retrieval.text.pages import count_bytes

_SEPARATOR = "\n\n"
# Blocks that clients show as what they are, or that are short.
_PASSED_ON = frozenset({"image", "audio", "resource_link"})
# Half as slow as the default level, and as small within a tenth for JSON.
_COMPRESSION = 1


@dataclass(frozen=True, slots=True)
class ResultDocument:
    """The texts of a result, and its structured content if they do not have it already."""

    texts: Sequence[str]
    structured: Any = None
    text: str = field(init=False, repr=False)
    root: Any = field(init=False, repr=False)
    """The object or array that the result is; None if it is not JSON."""

    def __post_init__(self) -> None:
        more = [] if self.structured is None else [_write_text(self.structured)]
        object.__setattr__(self, "text", _SEPARATOR.join([*self.texts, *more]))
        object.__setattr__(self, "root", self._find_root())

    def select(self, path: str) -> ResultDocument:
        """The value at a path, as a document. Raises Invalid for a result that is not JSON, NotFound."""
        if self.root is None:
            raise Invalid("path: this result is not JSON: use query or page instead", details={"field": "path"})
        value = resolve_path(self.root, parse_path(path))
        return ResultDocument([_write_text(value)])

    def pack(self) -> bytes:
        """The document, compressed."""
        content = {"texts": list(self.texts), "structured": self.structured}
        return zlib.compress(json.dumps(content).encode(), _COMPRESSION)

    def _find_root(self) -> Any:
        if isinstance(self.structured, dict | list):
            return self.structured
        values = [parse_container(text) for text in self.texts]
        containers = [value for value in values if value is not None]
        if len(containers) > 1 and len(containers) == len(values):
            return containers
        return containers[0] if len(containers) == 1 else None


def unpack_document(content: bytes) -> ResultDocument:
    """The document that was packed."""
    return ResultDocument(**json.loads(zlib.decompress(content)))


def replace_large_blobs(result: Mapping[str, Any], max_bytes: int) -> Mapping[str, Any]:
    """The result with a line of text instead of each larger blob, unless it is a picture or a sound."""
    blocks: Sequence[Mapping[str, Any]] = result.get("content") or ()
    lines = [_describe_blob(block, max_bytes) for block in blocks]
    if not any(lines):
        return result
    return {**result, "content": [line or block for line, block in zip(lines, blocks, strict=True)]}


def _describe_blob(block: Mapping[str, Any], max_bytes: int) -> Mapping[str, Any] | None:
    match block:
        case {"type": "resource", "resource": {"blob": str(blob), **resource}} if len(blob) > max_bytes:
            kind = str(resource.get("mimeType") or "an unknown type")
            if kind.startswith(("image/", "audio/")):
                return None
            text = f"[{len(blob) * 3 // 4} bytes of {kind} are left out: the resource {resource.get('uri')}]"
            return {"type": "text", "text": text}
    return None


def is_larger(result: Mapping[str, Any], max_bytes: int) -> bool:
    """Whether the texts of a result, or its structured content, take more bytes. Clients show one of the two."""
    texts = (_read_text(block) for block in result.get("content") or ())
    if sum(count_bytes(text) for text in texts if text) > max_bytes:
        return True
    structured = result.get("structuredContent")
    return structured is not None and count_bytes(_write_text(structured)) > max_bytes


def split_result(result: Mapping[str, Any]) -> tuple[ResultDocument, list[Mapping[str, Any]], int]:
    """The text of a result, the blocks that are passed on as they are, and where among these the text belongs."""
    result = _unwrap_resource(result)
    blocks: Sequence[Mapping[str, Any]] = result.get("content") or ()
    read = [(block, _read_text(block)) for block in blocks]
    passed = [block for block, text in read if text is None]
    texts = [(block, text) for block, text in read if text is not None]
    place = next((at for at, (_, text) in enumerate(read) if text is not None), 0)
    named = [_add_name(block, text) if len(texts) > 1 else text for block, text in texts]
    structured = result.get("structuredContent")
    is_repeated = structured is not None and _repeats(structured, [text for _, text in texts])
    return ResultDocument(named, None if is_repeated else structured), passed, place


def _unwrap_resource(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer of a text resource as blocks, to be read line by line: as JSON it would be one line."""
    match result:
        case {"structuredContent": {"contents": [*contents]}} if "content" not in result and all(
            isinstance(content, dict) and isinstance(content.get("text"), str) for content in contents
        ):
            return {"content": [{"type": "resource", "resource": content} for content in contents]}
    return result


def _read_text(block: Mapping[str, Any]) -> str | None:
    """The text of a block; None for one that is passed on."""
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"blob": str()}}:
            return None
        case {"type": str(kind)} if kind in _PASSED_ON:
            return None
        case _:
            return _write_text(block)


def _add_name(block: Mapping[str, Any], text: str) -> str:
    match block:
        case {"type": "resource", "resource": {"uri": str(uri)}}:
            return f"{uri}:\n{text}"
    return text


def _repeats(structured: Any, texts: Sequence[str]) -> bool:
    """Whether the texts have the structured content already: as its JSON, or as the only value in an object, as some
    servers send what is no object."""
    values = [value if (value := parse_container(text)) is not None else text for text in texts]
    candidates: list[Any] = [list(texts), values]
    if len(texts) == 1:
        candidates += [texts[0], values[0]]
    only = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else structured
    return structured in candidates or only in candidates


def _write_text(value: Any) -> str:
    return value if isinstance(value, str) else write_json(value)
