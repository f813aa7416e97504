"""Describes and calls tools that a search can find. Other tools cannot be called."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from toolscript.domain.catalog import Item, Schema
from toolscript.domain.errors import InvalidArguments, NotFound, ToolscriptError, UpstreamFailed
from toolscript.domain.servers import CallResult
from toolscript.ports.stores import ItemStore
from toolscript.services.catalogue.gateway import Gateway
from toolscript.services.tools.hybrid_search import ToolSearch

NEAREST = 3
MAX_PROBLEM_LENGTH = 300

log = logging.getLogger(__name__)


class CallTool:
    """Describes and calls one tool at a time."""

    def __init__(self, item_store: ItemStore, gateway: Gateway, search: ToolSearch) -> None:
        self._item_store = item_store
        self._gateway = gateway
        self._search = search
        self._checks: dict[str, tuple[Schema, Any]] = {}

    async def describe(self, item_id: str) -> Item:
        """The item, with its schemas. Raises NotFound, naming the nearest ids."""
        found = await self._item_store.get_items([item_id])
        if found:
            return found[0].item
        near = await self._find_similar(item_id)
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        raise NotFound(f"no such tool: {item_id!r}{hint}", details={"tool": item_id, "nearest": near})

    async def call(self, item_id: str, arguments: Any, *, within: float | None = None) -> CallResult:
        """The tool's result, within that many seconds.

        Raises NotFound, InvalidArguments (naming the field), UpstreamFailed with the server's own message, TimedOut, or
        Unavailable.
        """
        item = await self.describe(item_id)
        if not isinstance(arguments, Mapping):
            raise InvalidArguments(
                f"the arguments of {item_id} must be a JSON object", details={"field": "", "allowed": "an object"}
            )
        _require_json(arguments)
        self._check(item, arguments)
        result = await self._gateway.call(item, arguments, within)
        if result.is_error:
            raise UpstreamFailed(
                f"{item_id} failed: {result.text or 'the server gave no reason'}", details={"server": item.server}
            )
        return result

    def _check(self, item: Item, arguments: Mapping[str, Any]) -> None:
        known = self._checks.get(item.id)
        if known is None or known[0] != item.input_schema:
            known = self._checks[item.id] = (item.input_schema or {}, _build_validator(item))
        validator = known[1]
        if validator is None:
            return
        from jsonschema.exceptions import best_match

        try:
            problem = best_match(validator.iter_errors(dict(arguments)))
        except Exception as error:  # noqa: BLE001  (a tool with an unusable schema stays callable)
            log.debug("arguments_not_checked", extra={"tool": item.id, "reason": str(error)})
            return
        if problem is not None:
            field, message = _find_field(problem), _shorten(problem.message)
            raise InvalidArguments(
                f"{field or 'arguments'}: {message}", details={"field": field, "problem": message, "tool": item.id}
            )

    async def _find_similar(self, item_id: str) -> list[str]:
        try:
            found = await self._search.search(item_id[:200], limit=NEAREST, threshold=0.0)
        except ToolscriptError:
            return []
        return [hit.id for hit in found.hits]


def _require_json(arguments: Mapping[str, Any]) -> None:
    """Raises InvalidArguments for values that JSON cannot express: NaN, infinity, lone surrogates."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are not valid JSON: {error}", details={"field": ""}) from error


def _build_validator(item: Item) -> Any:
    """A validator of an item's arguments; None for an invalid schema. External references are not followed."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    schema = dict(item.input_schema or {})
    chosen = validator_for(schema, default=Draft202012Validator)
    try:
        chosen.check_schema(schema)
    except (SchemaError, TypeError, RecursionError) as error:
        log.debug("schema_not_usable", extra={"tool": item.id, "reason": str(error).partition("\n")[0]})
        return None
    # A malicious pattern can block the process for hours on a matching text: the tool's own server checks patterns.
    without_patterns = extend(chosen, {"pattern": lambda *_: None})  # type: ignore[no-untyped-call]
    return without_patterns(schema, registry=Registry())


def _shorten(message: str) -> str:
    """Cuts out the middle: a message begins with the given value and ends with what is wrong."""
    return message if len(message) <= MAX_PROBLEM_LENGTH else f"{message[:40]}…{message[40 - MAX_PROBLEM_LENGTH :]}"


def _find_field(problem: Any) -> str:
    path = [str(part) for part in problem.absolute_path]
    if problem.validator == "required":
        missing = [name for name in problem.validator_value if name not in problem.instance]
        path += missing[:1]
    if problem.validator == "additionalProperties":
        known = problem.schema.get("properties", {})
        path += [name for name in problem.instance if name not in known][:1]
    return ".".join(path)
