"""Real documents of public APIs become tools whose schemas are valid and stand alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.fixtures.api_documents import read_sample

pytestmark = [pytest.mark.extended, pytest.mark.slow, pytest.mark.req("O-01")]

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MAX_CHARACTERS = 40_000
# Checking a schema against the schema of schemas takes 50 ms.
MAX_CHECKED = 10


def list_references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for each in schema.values():
            yield from list_references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from list_references(each)


def test_documents_of_public_apis_become_tools_with_schemas_that_stand_alone() -> None:
    sample = read_sample()
    assert len(sample) >= 20
    assert [name for name, listing in sample.items() if not listing.items] == []
    for name, listing in sample.items():
        for number, item in enumerate(listing.items):
            assert NAME.fullmatch(item.name), (name, item.name)
            assert all(NAME.fullmatch(each) for each in item.parameters), (name, item.name)
            for schema in filter(None, (item.input_schema, item.output_schema)):
                if number < MAX_CHECKED:
                    Draft202012Validator.check_schema(schema)
                assert len(json.dumps(schema)) < MAX_CHARACTERS, (name, item.name)
                known = {f"#/$defs/{each}" for each in schema.get("$defs", {})}
                assert {*list_references(schema)} <= known, (name, item.name)
