"""Reads, writes and copies JSON values of programs without holding up the event loop.

`json` keeps Python's lock until it is done, in a thread as well: ten megabytes can take a second. So large values are
read and written by its slower half, written in Python, and they are measured before they are copied.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from json.encoder import encode_basestring
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, TypeVar

from toolscript.domain.errors import InvalidArguments

# One thread: each more would take a turn of Python's lock before the event loop gets it back.
_THREAD = ThreadPoolExecutor(1, "program-values")
# These take a millisecond, also of nothing but empty lists.
SMALL_VALUES = 1000
SMALL_TEXT_LENGTH = 2**13
# In a thread, `json` keeps the lock for 8 ms to read as much; reading it in Python would take ten times as long.
MEDIUM_TEXT_LENGTH = 2**18
# Before it is measured, a value can be as large as the memory of the program.
MAX_UNMEASURED = 16
FEW_BITS = 64
# Python writes no numbers with more than 4300 digits.
MIN_REFUSED_BITS = 14_000
# Of a value's lists and objects. Python collects garbage among them and frees them without a pause: 30 ms for as many.
MAX_PARTS = 250_000
# The arguments of all running calls of a program may have as many, or as many as one value. As objects of Python, they
# may need 200 MB.
MIN_OPEN_BYTES = 8_000_000
# Texts are joined without a pause.
JOINED_TEXTS = 50_000
TOO_DEEP = "it is too deeply nested"
TOO_MANY_PARTS = f"it has more than {MAX_PARTS:_} lists and objects".replace("_", " ")

_Result = TypeVar("_Result")
_Convert = Callable[[Any], Any]
"""Replaces an object that JSON does not have, or raises TypeError."""


class TooMuchJson(Exception):
    """A value is larger than the limit."""


class _ManyValues(Exception):
    """A value has too many parts to be measured on the event loop."""


async def read_json(text: str) -> Any:
    """The value that JSON stands for. Raises ValueError."""
    return await RunValues(0).read(text)


async def write_json(value: Any) -> str:
    """The JSON of a value, on one line. Raises ValueError."""
    return await RunValues(0).write(value)


class RunValues:
    """The values of one run. One large value of all runs is worked on at a time, in a thread. A run with many large
    values waits between them, so that other runs get their turn."""

    def __init__(self, max_bytes: int) -> None:
        """With the most bytes that one value may have."""
        self._turn = asyncio.Lock()
        self._max_open_bytes = max(max_bytes, MIN_OPEN_BYTES)
        self._open_bytes = 0
        self._unmeasured = 0

    @contextmanager
    def hold_arguments(self, size: int) -> Iterator[None]:
        """Counts the arguments of a call while it runs. Raises InvalidArguments."""
        if self._open_bytes + size > self._max_open_bytes:
            raise InvalidArguments(
                f"the arguments of the calls that are running have more than {self._max_open_bytes} bytes: start fewer "
                "at a time"
            )
        self._open_bytes += size
        try:
            yield
        finally:
            self._open_bytes -= size

    async def measure(self, value: Any, max_bytes: int, convert: _Convert) -> int:
        """How many bytes of JSON a value is; more for numbers with thousands of digits. Raises TooMuchJson, ValueError
        for what cannot be written as JSON, and InvalidArguments when too many values wait for that."""
        try:
            return _measure(value, max_bytes, convert, SMALL_VALUES)
        except _ManyValues:
            if self._unmeasured >= MAX_UNMEASURED:
                raise InvalidArguments(
                    f"more than {MAX_UNMEASURED} calls with large arguments start together: start fewer at a time"
                ) from None
        self._unmeasured += 1
        try:
            return await self._work(_measure, value, max_bytes, convert)
        finally:
            self._unmeasured -= 1

    async def copy(self, value: Any, max_bytes: int, convert: _Convert) -> Any:
        """A copy of the value, made of what JSON allows. Raises TooMuchJson, and ValueError for what cannot be written
        as JSON."""
        try:
            _measure(value, max_bytes, convert, SMALL_VALUES)
            return _copy(value, convert)
        except _ManyValues:
            return await self._work(_measure_and_copy, value, max_bytes, convert)

    async def read(self, text: str) -> Any:
        """The value that JSON stands for. Raises ValueError."""
        if len(text) < SMALL_TEXT_LENGTH:
            return _read(text, _DECODER)
        return await self._work(_read, text, _DECODER if len(text) < MEDIUM_TEXT_LENGTH else _SlowDecoder())

    async def write(self, value: Any) -> str:
        """The JSON of a value, on one line. Raises ValueError."""
        try:
            _measure(value, SMALL_TEXT_LENGTH, _refuse, SMALL_VALUES)
            return _ENCODER.encode(value)
        except (_ManyValues, TooMuchJson):
            return await self._work(_write_slowly, value)
        except RecursionError:
            raise ValueError(TOO_DEEP) from None

    async def _work(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(_THREAD, function, *arguments)


def _measure(value: Any, max_bytes: int, convert: _Convert, max_values: float = math.inf) -> int:
    """A few shared lists can stand for billions of elements, and the text of one long string is written without a pause
    for other threads: so it is counted before. Raises _ManyValues."""
    left, stack = max_bytes, [value]
    values_left, parts_left = max_values, MAX_PARTS
    while stack:
        values_left -= 1
        if values_left < 0:
            raise _ManyValues
        each = stack.pop()
        match each:
            case str() | int() | float() | None:
                left -= _measure_simple(each, left)
            case dict() | list() | tuple():
                parts_left -= 1
                left -= max(2, (4 if isinstance(each, dict) else 2) * len(each))
                if left >= 0:
                    stack += [*each.keys(), *each.values()] if isinstance(each, dict) else each
            case _:
                stack.append(_replace(each, convert))
        if left < 0:
            raise TooMuchJson
        if parts_left < 0:
            raise ValueError(TOO_MANY_PARTS)
    return max_bytes - left


def _measure_simple(value: str | float | None, left: int) -> int:
    match value:
        case str():
            if len(value) > left:
                return len(value)
            written = encode_basestring(value)
            return len(written) if written.isascii() else len(written.encode("utf-8", "replace"))
        case None | bool():
            return 4
        case int():
            if value.bit_length() < FEW_BITS:
                return len(str(value))
            # More for thousands of digits: the time to write them grows with their square, without a pause.
            digits = (value.bit_length() - 1) * 3 // 10 + 1
            return digits + digits * digits // 500
        case _:
            return len(repr(value))


def _replace(value: Any, convert: _Convert) -> Any:
    try:
        return convert(value)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _measure_and_copy(value: Any, max_bytes: int, convert: _Convert) -> Any:
    _measure(value, max_bytes, convert)
    return _copy(value, convert)


def _copy(value: Any, convert: _Convert) -> Any:
    try:
        return _copy_part(value, convert)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _copy_part(value: Any, convert: _Convert) -> Any:
    match value:
        case None | bool() | str():
            return value
        case int() if value.bit_length() < MIN_REFUSED_BITS:
            return value
        case float() if math.isfinite(value):
            return value
        case int() | float():
            _ENCODER.encode(value)  # raises what is wrong with it
            return value
        case dict():
            return {_copy_key(key): _copy_part(each, convert) for key, each in value.items()}
        case list() | tuple():
            return [_copy_part(each, convert) for each in value]
        case _:
            return _copy_part(_replace(value, convert), convert)


def _copy_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return _ENCODER.encode(key)
    raise ValueError(f"keys must be str, int, float, bool or None, not {type(key).__name__}")


def _read(text: str, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(_SURROGATES.sub(_replace_half, text) if "\\u" in text else text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _write_slowly(value: Any) -> str:
    try:
        texts = _ENCODER.iterencode(value)
        return "".join(iter(lambda: "".join(islice(texts, JOINED_TEXTS)), ""))
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _replace_half(found: re.Match[str]) -> str:
    """Replaces half of a surrogate pair by a question mark: no other program can read it."""
    return "?" if found["half"] else found[0]


def _refuse(value: Any) -> Any:
    raise TypeError(f"a value of the type {type(value).__name__} is not JSON")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _read_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


class _SlowDecoder(json.JSONDecoder):
    """Reads lists and objects in Python, where other threads get their turn."""

    def __init__(self) -> None:
        super().__init__(parse_constant=_refuse_constant, parse_float=_read_float)
        self._parts_left = MAX_PARTS
        self.parse_object, self.parse_array = self._count(JSONObject), self._count(JSONArray)
        self.scan_once = py_make_scanner(self)

    def _count(self, parse: Callable[..., _Result]) -> Callable[..., _Result]:
        def parse_next(*arguments: Any) -> _Result:
            self._parts_left -= 1
            if self._parts_left < 0:
                raise ValueError(TOO_MANY_PARTS)
            return parse(*arguments)

        return parse_next


# It begins with what all alternatives begin with: otherwise it takes 50 times as long, and keeps Python's lock.
_SURROGATES = re.compile(r"\\(?:\\|u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>u[dD][89a-fA-F]..))")
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_read_float)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
