"""JSON values in place of the Python objects that JSON does not have."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any

from pydantic_monty import MontyClassProxy


def convert_value(value: object) -> Any:
    """A value that JSON allows, or contains. Raises TypeError."""
    match value:
        case set() | frozenset():
            return list(value)
        case datetime() | date() | time():
            return value.isoformat()
        case MontyClassProxy():
            return value.attributes
        case _:
            raise TypeError(
                f"a value of the type {type(value).__name__} is not JSON: return dictionaries, lists, "
                "strings, numbers, booleans or None"
            )
