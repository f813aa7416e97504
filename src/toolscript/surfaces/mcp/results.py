"""Results of tools on the wire. What a server sent passes unchanged where the caller's version of the protocol has it;
the rest becomes text, so that nothing is lost and no client gets what it must reject."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import CallToolResult, ContentBlock
from mcp_types.methods import is_input_required
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

# Blocks that came after the first version of the protocol.
_BLOCKS_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
_blocks: TypeAdapter[list[ContentBlock]] = TypeAdapter(list[ContentBlock])
_kept_result: ContextVar[Mapping[str, Any]] = ContextVar("result")


def build_text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """The result of a tool that answers with one text."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def keep_result(result: Mapping[str, Any]) -> CallToolResult:
    """Keeps the result of the current request for `restore_result`; returns an empty result for the SDK: it would drop
    fields that it does not know and reject blocks that it does not know."""
    _kept_result.set(result)
    return CallToolResult(content=[])


async def restore_result(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Puts the kept result of a tool into the SDK's answer."""
    answer = await call_next(ctx)
    if ctx.method != "tools/call" or not isinstance(answer, dict):
        return answer
    kept = _kept_result.get()
    meta = {**(answer.get("_meta") or {}), **(kept.get("_meta") or {})}
    passed = dict(kept) if is_input_required(kept) else {**answer, **fit_result(kept, ctx.protocol_version)}
    return {**passed, **({"_meta": meta} if meta else {})}


def fit_result(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The result as a client of this version of the protocol can read it. Before 2026-07-28 structured content was an
    object: other values are there as text."""
    fitted = dict(result)
    has_structured, structured = "structuredContent" in result, result.get("structuredContent")
    content = _fit_blocks(result.get("content", ()), version)
    is_readable = version in MODERN_PROTOCOL_VERSIONS or isinstance(structured, dict)
    if has_structured and not is_readable:
        del fitted["structuredContent"]
    if has_structured and ("content" not in result or not (is_readable or _has_text_of(content, structured))):
        content = [*content, _make_text(structured)]
    if version not in MODERN_PROTOCOL_VERSIONS:
        fitted.pop("resultType", None)
    return {**fitted, "content": content}


def _fit_blocks(blocks: Sequence[Mapping[str, Any]], version: str) -> list[Mapping[str, Any]]:
    """The blocks; blocks that this version does not have become text with their JSON."""
    if _are_known(blocks, version):
        return list(blocks)
    return [block if _are_known([block], version) else _make_text(block) for block in blocks]


def _are_known(blocks: Sequence[Mapping[str, Any]], version: str) -> bool:
    try:
        _blocks.validate_python(blocks, by_name=False)
    except ValidationError:
        return False
    return all(_BLOCKS_SINCE.get(block["type"], version) <= version for block in blocks)


def _has_text_of(blocks: Sequence[Mapping[str, Any]], value: Any) -> bool:
    """Whether a text block has the value already, as JSON or, for a string, as it is."""
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    return value in texts or json.dumps(value) in map(_normalise_json, texts)


def _normalise_json(text: str) -> str | None:
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _make_text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": json.dumps(value, ensure_ascii=False)}
