"""The search in knowledge of the MCP surface: the same answer as over HTTP, because what is told is to be cited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from toolscript.app.app import App
from toolscript.domain.errors import InvalidArguments
from toolscript.services.knowledge.search import DEFAULT_HITS, MAX_HITS, KnowledgeQuery
from toolscript.surfaces.json.knowledge import build_knowledge_response
from toolscript.surfaces.json.knowledge_request import parse_words
from toolscript.surfaces.mcp.search_tools import wanted


async def search_knowledge(app: App, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What `search_knowledge` answers. Raises InvalidArguments, naming the argument, and what the service raises."""
    types, topics = _words(arguments, "type"), _words(arguments, "topics")
    ask = KnowledgeQuery(wanted(arguments, "query"), _limit(arguments.get("limit")), types, topics)
    return build_knowledge_response(ask.query, await app.knowledge_search.search(ask))


def _words(arguments: Mapping[str, Any], name: str) -> tuple[str, ...]:
    given = arguments.get(name)
    listed = _meant(given)
    return parse_words(name, listed if isinstance(listed, list) else given) or ()


def _limit(given: Any) -> int:
    meant = DEFAULT_HITS if given is None else _meant(given)
    if not isinstance(meant, int) or isinstance(meant, bool) or not 1 <= meant <= MAX_HITS:
        raise InvalidArguments(f"limit: give a whole number from 1 to {MAX_HITS}", details={"field": "limit"})
    return meant


def _meant(given: Any) -> Any:
    """Some models write lists and numbers as texts."""
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            return json.loads(given)
    return given
