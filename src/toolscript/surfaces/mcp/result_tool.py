"""The `read_result` tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolscript.app.app import App
from toolscript.services.results.large_results import ResultHit, ResultPage
from toolscript.surfaces.mcp.definitions import ReadResultArguments


async def read_result(app: App, arguments: ReadResultArguments, user: str) -> Mapping[str, Any]:
    """Reads or searches a result that was cut. Raises the errors of the service."""
    query = arguments.query
    found = await app.texts.large_results.read(
        arguments.handle, user, query=query, path=arguments.path, page=arguments.page
    )
    if isinstance(found, ResultPage):
        return _build_texts([found.text, *_describe_rest(found)])
    nothing = f"No part of this result has a word of {query!r}. Try other words, or read it with page."
    return _build_texts([_format_hit(hit) for hit in found] or [nothing])


def _format_hit(hit: ResultHit) -> str:
    places = ([f"path={hit.path}"] if hit.path else []) + ([f"page={hit.page}"] if hit.page else [])
    return f"[{' '.join(places) or 'the whole'}]\n{hit.text}"


def _describe_rest(page: ResultPage) -> list[str]:
    """A block after the page's own, so that the pages alone are the whole text."""
    if page.pages == 1:
        return []
    following = f": page={page.page + 1} goes on" if page.page < page.pages else ", the last"
    return [f"[Page {page.page} of {page.pages}{following}.]"]


def _build_texts(texts: list[str]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts], "isError": False}
