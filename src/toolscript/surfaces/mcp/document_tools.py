"""The `search_documents` tool. Results are two short lines each, because every token is part of the agent's context.

Agents write filters as fields with a value, a list or operators; or as the filters of `POST /search`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from toolscript.app.app import App
from toolscript.domain.access import Principal
from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.services.documents.search import DocumentHit, DocumentQuery, SearchType
from toolscript.surfaces.json.filters import MAX_CONDITIONS, MAX_VALUES, FiltersModel
from toolscript.surfaces.mcp.definitions import SearchDocumentsArguments
from toolscript.surfaces.mcp.search_tools import shorten

MAX_TITLE_LENGTH = 110
MAX_SNIPPET_LENGTH = 240
_ALLOWED = 'filters: must be an object like {"team": "sales", "tags": ["a", "b"], "year": {"gte": 2024}}, or left out'


async def search_documents(app: App, principal: Principal, arguments: SearchDocumentsArguments) -> str:
    """Searches the documents of the principal's tenant. Raises InvalidArguments and the errors of the service."""
    query = DocumentQuery(
        query=arguments.query,
        top_k=arguments.limit,
        search_type=arguments.search_type or SearchType.HYBRID,
        where=_parse_filters(arguments.filters),
        snippet_max_chars=MAX_SNIPPET_LENGTH,
    )
    page = await app.document_search.search(principal, query)
    lines = []
    if "embedder" in page.report.degraded:
        lines.append("The query could not be embedded: found by words alone.")
    if not page.hits:
        lines.append(f"No documents found for {arguments.query!r}. Rephrase once, then give up.")
    return "\n".join([*lines, *(line for hit in page.hits for line in _format_hit(hit))])


def _format_hit(hit: DocumentHit) -> list[str]:
    title = shorten(str(hit.metadata.get("title") or ""), MAX_TITLE_LENGTH)
    head = f"{hit.doc_id}  {hit.score:.3f}  {title}".rstrip()
    return [head, f"  {shorten(hit.snippet, MAX_SNIPPET_LENGTH)}"] if hit.snippet else [head]


def _parse_filters(value: Any) -> Filter:
    """Parses the `filters` of a call; None and {} match everything. Raises InvalidArguments."""
    if value is None or value == {}:
        return EVERYTHING
    if not isinstance(value, dict):
        raise InvalidArguments(_ALLOWED, details={"field": "filters"})
    if value.keys() & FiltersModel.model_fields.keys():
        return _parse_http_filters(value)
    try:
        conditions = tuple(_parse_conditions(value))
    except Invalid as error:
        raise InvalidArguments(f"{_ALLOWED}: {error.message}", details={"field": "filters"}) from error
    if len(conditions) > MAX_CONDITIONS:
        raise InvalidArguments(f"filters: at most {MAX_CONDITIONS} conditions", details={"field": "filters"})
    return Filter(must=conditions)


def _parse_http_filters(value: Mapping[str, Any]) -> Filter:
    try:
        return FiltersModel.model_validate_json(json.dumps(value)).to_filter()
    except (ValidationError, RecursionError) as error:
        raise InvalidArguments(
            f"{_ALLOWED}; must, should and must_not are not fields but lists of conditions: "
            '{"must": [{"field": "year", "op": "gte", "value": 2024}]}, without other keys',
            details={"field": "filters"},
        ) from error


def _parse_conditions(fields: Mapping[str, Any]) -> Iterator[Condition]:
    for field, value in fields.items():
        tests = value if isinstance(value, dict) else {Op.IN if isinstance(value, list) else Op.EQ: value}
        for op, operand in tests.items():
            if op not in set(Op):
                raise Invalid(f"{op!r} is not one of {', '.join(Op)}")
            if isinstance(operand, list) and len(operand) > MAX_VALUES:
                raise Invalid(f"{field!r} has more than {MAX_VALUES} values")
            yield Condition(field, Op(op), operand)
