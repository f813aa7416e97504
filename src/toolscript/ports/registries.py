"""Registries of MCP servers, and the store of what they list."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolscript.domain.registry.entry import RegistryEntry
from toolscript.domain.search import TermCounts


@dataclass(frozen=True, slots=True)
class RegistryListing:
    """What a registry has sent: every version of every server, or of those that changed."""

    entries: Sequence[RegistryEntry]
    problems: Sequence[str] = ()
    """Why other entries cannot be used."""


class RegistrySource(Protocol):
    """Reads registries."""

    async def list_entries(self, url: str, *, changed_since: str = "") -> RegistryListing:
        """All entries, or those that changed since that time. Raises Unavailable or Invalid, saying what is wrong with
        the address or the answer; then nothing of it may be used."""


class RegistryStore(Protocol):
    """Keeps what registries have listed.

    >>> import asyncio
    >>> from toolscript.adapters.sql.database import Database
    >>> from toolscript.adapters.sql.registries import SqlRegistries
    >>> async def forget():
    ...     database = Database("sqlite://")
    ...     store = SqlRegistries(database)
    ...     await store.save("https://registry.example", "2026-01-01", [], {}, [])
    ...     was_there = await store.remove_registry("https://registry.example")
    ...     await database.close()
    ...     return was_there
    >>> asyncio.run(forget())
    True
    """

    async def list_registries(self) -> dict[str, str]:
        """The registries, each with the time of the newest change that it has sent."""

    async def save(
        self,
        registry: str,
        changed_until: str,
        entries: Sequence[RegistryEntry],
        terms: Mapping[str, frozenset[int]],
        removed: Collection[str],
    ) -> None:
        """Adds or replaces entries of a registry, with their terms by id, and removes the entries with the ids
        `removed`, as one transaction."""

    async def remove_registry(self, registry: str) -> bool:
        """Removes a registry and its entries; returns whether it was there."""

    async def list_entries(self, registry: str | None = None) -> list[RegistryEntry]:
        """All entries, or those of one registry, by id."""

    async def get_entries(self, ids: Collection[str]) -> dict[str, RegistryEntry]:
        """The entries with these ids that exist, by id."""

    async def find_by_name(self, name: str) -> list[RegistryEntry]:
        """The entries of that name, whatever its case, by id."""

    async def count_terms(self, terms: Sequence[int]) -> TermCounts:
        """The number of entries, and the number of entries with each of these terms."""
