"""Copies values of programs as JSON that cannot grow beyond a limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

# A megabyte of small numbers takes a third of a second. One thread: each more would take a turn of Python's lock before
# the event loop gets it back.
_THREAD = ThreadPoolExecutor(1, "program-values")


class TooMuchJson(Exception):
    """A value is larger than the limit."""


async def measure_json(value: Any, max_bytes: int, convert: Callable[[Any], Any]) -> int:
    """About how many bytes of JSON a value is; `convert` replaces other objects, or raises TypeError. Raises
    TooMuchJson, and ValueError for what cannot be written as JSON."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, _measure, value, max_bytes, convert)


async def copy_as_json(value: Any, max_bytes: int, convert: Callable[[Any], Any]) -> Any:
    """A copy of the value, made of what JSON allows; `convert` replaces other objects, or raises TypeError. Raises
    TooMuchJson, and ValueError for what cannot be written as JSON."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, _copy, value, max_bytes, convert)


def _copy(value: Any, max_bytes: int, convert: Callable[[Any], Any]) -> Any:
    _measure(value, max_bytes, convert)
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=convert)
        if len(text) > max_bytes:
            raise TooMuchJson
        return json.loads(text)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _measure(value: Any, max_bytes: int, convert: Callable[[Any], Any]) -> int:
    """Raises TooMuchJson for a value whose text would be longer. A few shared lists can stand for billions of elements,
    and the text of one long string is written without a pause for other threads: so it is counted before."""
    left, stack = max_bytes, [value]
    while stack:
        if left < 0:
            raise TooMuchJson
        each = stack.pop()
        match each:
            case str():
                left -= len(each)
            case dict():
                left -= len(each)
                stack += [*each.keys(), *each.values()] if left >= 0 else []
            case list() | tuple():
                left -= len(each)
                stack += each if left >= 0 else []
            case None | bool():
                pass
            case int():
                left -= _measure_integer(each)
            case float():
                left -= len(repr(each))
            case _:
                stack.append(_replace(each, convert))
    if left < 0:
        raise TooMuchJson
    return max_bytes - left


def _measure_integer(number: int) -> int:
    """Its digits, and more for thousands of them: the time to write them grows with their square, without a pause."""
    digits = (number.bit_length() - 1) * 3 // 10 + 1
    return digits + digits * digits // 500


def _replace(value: Any, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(value)
    except TypeError as error:
        raise ValueError(str(error)) from None
