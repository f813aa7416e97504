"""The `search_documents` tool. Results are two short lines each, because every token is part of the agent's context."""

from __future__ import annotations

from toolscript.app.app import App
from toolscript.domain.access import Principal
from toolscript.services.documents.search import DocumentHit, DocumentQuery, SearchType
from toolscript.surfaces.json.tools import shorten
from toolscript.surfaces.mcp.definitions import SearchDocumentsArguments
from toolscript.surfaces.mcp.filters import parse_filters

MAX_TITLE_LENGTH = 110
MAX_SNIPPET_LENGTH = 240


async def search_documents(app: App, principal: Principal, arguments: SearchDocumentsArguments) -> str:
    """Searches the documents of the principal's tenant. Raises InvalidArguments and the errors of the service."""
    query = DocumentQuery(
        query=arguments.query,
        top_k=arguments.limit,
        search_type=arguments.search_type or SearchType.HYBRID,
        where=parse_filters(arguments.filters),
        snippet_max_chars=MAX_SNIPPET_LENGTH,
        min_relevance=arguments.min_relevance,
    )
    page = await app.texts.document_search.search(principal, query)
    lines = []
    if "embedder" in page.report.degraded:
        lines.append("The query could not be embedded: found by words alone.")
    if not page.hits:
        found = (
            "No documents"
            if arguments.min_relevance is None
            else f"No documents of relevance {arguments.min_relevance}"
        )
        lines.append(f"{found} found for {arguments.query!r}. Rephrase once, then give up.")
    elif page.nothing_relevant:
        lines.append(f"Nothing relevant found for {arguments.query!r}. The nearest, most likely about something else:")
    return "\n".join([*lines, *(line for hit in page.hits for line in _format_hit(hit))])


def _format_hit(hit: DocumentHit) -> list[str]:
    title = shorten(str(hit.metadata.get("title") or ""), MAX_TITLE_LENGTH)
    relevance = "" if hit.relevance is None else f"  {hit.relevance:.2f}"
    head = f"{hit.doc_id}{relevance}  {title}".rstrip()
    return [head, f"  {shorten(hit.snippet, MAX_SNIPPET_LENGTH)}"] if hit.snippet else [head]
