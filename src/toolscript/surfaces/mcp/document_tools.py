"""The search in documents of the MCP surface: told in a few short lines, and only to whoever owns the documents."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from toolscript.app.app import App
from toolscript.domain.access import Principal
from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.services.documents.search import DocumentHit, DocumentQuery, SearchType
from toolscript.surfaces.json.filters import MAX_CONDITIONS, MAX_VALUES, FiltersModel
from toolscript.surfaces.mcp.definitions import SEARCH_TYPES
from toolscript.surfaces.mcp.search_tools import limit_of, one_of, short, wanted

Caller = Callable[[], Awaitable[Principal]]

LONGEST_TITLE = 110
LONGEST_SNIPPET = 240

_FILTERS = 'filters: give an object like {"team": "sales", "tags": ["a", "b"], "year": {"gte": 2024}}, or leave it out'
_WORDS_ALONE = "The query could not be embedded: found by words alone."


async def search_documents(app: App, arguments: Mapping[str, Any], caller: Caller) -> str:
    """What `search_documents` answers. Raises InvalidArguments, naming the argument, Unauthorized, and what the service
    raises."""
    principal = await caller()
    query = wanted(arguments, "query")
    search_type = one_of(arguments, "search_type", SEARCH_TYPES)
    ask = DocumentQuery(
        query=query,
        top_k=limit_of(arguments),
        search_type=SearchType(search_type) if search_type else SearchType.HYBRID,
        where=_where(arguments.get("filters")),
        snippet_max_chars=LONGEST_SNIPPET,
    )
    page = await app.document_search.search(principal, ask)
    lines = [_WORDS_ALONE] if "embedder" in page.report.degraded else []
    if not page.hits:
        return "\n".join([*lines, f"No documents found for {query!r}. Try other words once; then there is nothing."])
    return "\n".join([*lines, *(line for hit in page.hits for line in _told(hit))])


def _told(hit: DocumentHit) -> list[str]:
    head = f"{hit.doc_id}  {hit.score:.3f}  {short(str(hit.metadata.get('title') or ''), LONGEST_TITLE)}".rstrip()
    return [head, f"  {short(hit.snippet, LONGEST_SNIPPET)}"] if hit.snippet else [head]


def _where(given: Any) -> Filter:
    """Fields with a value, a list of which any will do, or operators; also the filters of `POST /search`."""
    if isinstance(given, str):  # some models write the object as a text
        with suppress(ValueError, RecursionError):
            given = json.loads(given)
    if given is None or given == {}:
        return EVERYTHING
    if not isinstance(given, dict):
        raise InvalidArguments(_FILTERS, details={"field": "filters"})
    if given.keys() & FiltersModel.model_fields.keys():
        return _as_over_http(given)
    try:
        conditions = tuple(_condition(*each) for each in _tests(given))
    except Invalid as error:
        raise InvalidArguments(f"{_FILTERS}: {error.message}", details={"field": "filters"}) from error
    if len(conditions) > MAX_CONDITIONS:
        raise InvalidArguments(f"filters: give at most {MAX_CONDITIONS}", details={"field": "filters"})
    return Filter(must=conditions)


def _as_over_http(given: Mapping[str, Any]) -> Filter:
    try:
        return FiltersModel.model_validate_json(json.dumps(given)).to_filter()
    except (ValidationError, RecursionError) as error:
        raise InvalidArguments(
            f"{_FILTERS}; must, should and must_not are no fields but lists of conditions: "
            '{"must": [{"field": "year", "op": "gte", "value": 2024}]}, with nothing beside them',
            details={"field": "filters"},
        ) from error


def _tests(given: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    tests = []
    for field, value in given.items():
        if isinstance(value, dict):
            tests += [(field, op, operand) for op, operand in value.items()]
        else:
            tests.append((field, Op.IN if isinstance(value, list) else Op.EQ, value))
    return tests


def _condition(field: str, op: str, value: Any) -> Condition:
    if op not in set(Op):
        raise Invalid(f"{op!r} is none of {', '.join(Op)}")
    if isinstance(value, list) and len(value) > MAX_VALUES:
        raise Invalid(f"{field!r} has more than {MAX_VALUES} values")
    return Condition(field, Op(op), value)
