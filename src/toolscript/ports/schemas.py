"""Checks of arguments against JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolscript.domain.catalog import Schema


@dataclass(frozen=True, slots=True)
class ArgumentProblem:
    """What is wrong with arguments, and the field (`address.city`; empty for all of them)."""

    field: str
    message: str


class ArgumentChecker(Protocol):
    """Checks the arguments of calls.

    >>> import asyncio
    >>> from toolscript.adapters.json_schema.checker import WorkerChecker
    >>> async def check(arguments):
    ...     checker = WorkerChecker()
    ...     try:
    ...         return await checker.check({"required": ["path"]}, arguments)
    ...     finally:
    ...         await checker.close()
    >>> asyncio.run(check({})).field
    'path'
    """

    async def prepare(self) -> None:
        """Starts what the first check needs; it would be started then otherwise. Raises Unavailable."""

    async def check(self, schema: Schema, arguments: Mapping[str, Any]) -> ArgumentProblem | None:
        """The worst problem; None for valid arguments, and for a schema that cannot be used. Raises TimedOut when that
        takes too long, and Unavailable when nothing can be checked."""

    async def find_fault(self, schema: Schema) -> str:
        """Why a schema, or a reference within it, cannot be used; empty if all can. Raises as `check` does."""

    async def close(self) -> None:
        """Ends what it has started."""
