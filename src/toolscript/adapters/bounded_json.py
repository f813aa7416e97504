"""Copies values of programs as JSON that cannot grow beyond a limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any


class TooMuchJson(Exception):
    """A value is larger than the limit."""


async def copy_as_json(value: Any, max_bytes: int, convert: Callable[[Any], Any]) -> Any:
    """A copy of the value, made of what JSON allows; `convert` replaces other objects, or raises TypeError. Raises
    TooMuchJson, and ValueError for what cannot be written as JSON."""
    # In a thread: a megabyte of small numbers takes a third of a second.
    return await asyncio.to_thread(_copy, value, max_bytes, convert)


def _copy(value: Any, max_bytes: int, convert: Callable[[Any], Any]) -> Any:
    written, size = [], 0
    try:
        # A few shared lists can stand for billions of elements, so the text is counted while it is written.
        for chunk in json.JSONEncoder(allow_nan=False, default=convert).iterencode(value):
            written.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                raise TooMuchJson
        return json.loads("".join(written))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
