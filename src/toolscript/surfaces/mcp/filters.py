"""Filters as agents write them: fields with a value, a list or operators; or as the filters of `POST /search`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import EVERYTHING, Condition, Filter, Op
from toolscript.surfaces.json.filters import MAX_CONDITIONS, MAX_VALUES, FiltersModel

_ALLOWED = 'filters: must be an object like {"team": "sales", "tags": ["a", "b"], "year": {"gte": 2024}}, or left out'


def parse_filters(value: Any) -> Filter:
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
