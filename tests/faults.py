"""Adapters in trouble: one method fails, hangs or answers nonsense, and the rest is real."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolscript.domain.errors import Invalid, InvalidArguments, NotFound, Unavailable

Fault = Callable[[Awaitable[Any]], Awaitable[Any]]


def raising(error: Exception) -> Fault:
    async def fault(_: Awaitable[Any]) -> Any:
        raise error

    return fault


def saying(make: Callable[[Any], Any]) -> Fault:
    """Answers what is made of the true answer."""

    async def fault(true: Awaitable[Any]) -> Any:
        return make(await true)

    return fault


async def hang(_: Awaitable[Any]) -> Any:
    await asyncio.Event().wait()


@dataclass
class Troubled:
    """An adapter with one method in trouble, in those collections where it has several."""

    real: Any
    method: str
    fault: Fault
    collections: tuple[str, ...] = ()
    is_on: bool = True

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.real, name)
        if name != self.method:
            return real

        async def troubled(*args: Any, **named: Any) -> Any:
            if not self.is_on or (self.collections and args[0] not in self.collections):
                return await real(*args, **named)
            true = real(*args, **named)
            try:
                return await self.fault(true)
            finally:
                true.close()

        return troubled


FAULTS: Mapping[str, Fault] = {
    "unavailable": raising(Unavailable("gone for a while")),
    "invalid": raising(Invalid("not my fault")),
    "invalid arguments": raising(InvalidArguments("not the caller's fault either")),
    "not found": raising(NotFound("no such thing")),
    "runtime error": raising(RuntimeError("a bug")),
    "os error": raising(OSError(28, "No space left on device")),
    "timeout": raising(TimeoutError()),
    "hangs": hang,
    "none": saying(lambda _: None),
}
