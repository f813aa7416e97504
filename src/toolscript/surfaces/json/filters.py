"""Filters of document searches as JSON, the same over HTTP and MCP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import Condition, Filter, Op

MAX_CONDITIONS = 100
MAX_VALUES = 1000

_SCALARS = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
METADATA_VALUE = {"anyOf": [*_SCALARS, {"type": "array", "items": {"anyOf": _SCALARS}, "maxItems": MAX_VALUES}]}


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ConditionModel(_StrictModel):
    """One test of one metadata field. A field with a list passes if any of its values does."""

    field: str = Field(min_length=1, max_length=128, description="Name of a metadata field.", examples=["tags"])
    op: Op = Field(description="Operator.", examples=["in"])
    value: Annotated[Any, WithJsonSchema(METADATA_VALUE)] = Field(
        description="A list for `in` and `nin`, a boolean for `exists`, a number or an ISO date for `lt`, `lte`, `gt` "
        "and `gte`; otherwise a string, number or boolean.",
        examples=[["contract", "ruling"]],
    )


Conditions = Annotated[list[ConditionModel], Field(max_length=MAX_CONDITIONS, fail_fast=True)]


class FiltersModel(_StrictModel):
    """All of `must`, at least one of `should` (if any are given), and none of `must_not`."""

    must: Conditions | None = None
    should: Conditions | None = None
    must_not: Conditions | None = None

    def to_filter(self) -> Filter:
        """Converts it to the domain's filter. Raises InvalidArguments, naming the condition."""
        parts = {name: getattr(self, name) or [] for name in FiltersModel.model_fields}
        if sum(map(len, parts.values())) > MAX_CONDITIONS:
            raise InvalidArguments(
                f"filters: more than {MAX_CONDITIONS} conditions: give fewer",
                details={"field": "filters", "most": MAX_CONDITIONS},
            )
        must, should, must_not = (_to_conditions(f"filters.{name}", models) for name, models in parts.items())
        return Filter(must, should, must_not)


def _to_conditions(path: str, models: Sequence[ConditionModel]) -> tuple[Condition, ...]:
    conditions = []
    for number, model in enumerate(models):
        field = f"{path}.{number}.value"
        if isinstance(model.value, list) and len(model.value) > MAX_VALUES:
            raise InvalidArguments(
                f"{field}: more than {MAX_VALUES} values: give fewer", details={"field": field, "most": MAX_VALUES}
            )
        try:
            conditions.append(Condition(model.field, model.op, model.value))
        except Invalid as error:
            raise InvalidArguments(
                f"{path}.{number}: {error.message}", details={**error.details, "field": field}
            ) from error
    return tuple(conditions)
