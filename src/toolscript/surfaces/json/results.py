"""Responses about large results as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolscript.app.app import App


async def build_result_response(
    app: App, handle: str, user: str, *, query: str | None, path: str | None, page: int | None
) -> dict[str, Any]:
    """Builds the response of `GET /api/v1/results/{handle}` and `toolscript results --json`: a page, or with a query
    the parts that fit. Raises the errors of the service."""
    found = await app.large_results.read(handle, user, query=query, path=path, page=page)
    if isinstance(found, list):
        return {"handle": handle, "query": query, "hits": [asdict(hit) for hit in found]}
    return {"handle": handle, **asdict(found)}
