"""Responses about large results as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

if TYPE_CHECKING:
    from toolscript.app.app import App


class ResultPageResponse(TypedDict):
    """A page of a result, or of the value at a path."""

    handle: str
    text: Annotated[str, "The text of the page. All pages joined are the whole."]
    page: int
    pages: Annotated[int, "Number of pages."]


class ResultHitResponse(TypedDict):
    """A part of a result."""

    text: str
    path: Annotated[str | None, "Where it is in the JSON; null in a text."]
    page: Annotated[int | None, "The page that it is on, of the value at the path; null if that is short."]


class ResultHitsResponse(TypedDict):
    """The parts of a result that fit a query, best first."""

    handle: str
    query: str
    hits: list[ResultHitResponse]


async def build_result_response(
    app: App, handle: str, user: str, *, query: str | None, path: str | None, page: int | None
) -> ResultPageResponse | ResultHitsResponse:
    """Builds the response of `GET /api/v1/results/{handle}` and `toolscript results --json`: a page, or with a query
    the parts that fit. Raises the errors of the service."""
    found = await app.texts.large_results.read(handle, user, query=query, path=path, page=page)
    if isinstance(found, list):
        hits: list[ResultHitResponse] = [{"text": hit.text, "path": hit.path, "page": hit.page} for hit in found]
        return {"handle": handle, "query": query or "", "hits": hits}
    return {"handle": handle, "text": found.text, "page": found.page, "pages": found.pages}
