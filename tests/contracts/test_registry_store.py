"""What every store of registries promises: entries and their terms change together, one registry at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.servers.registry import describe_server
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.registries import SqlRegistries
from toolscript.domain.registry.entry import RegistryEntry, read_entry
from toolscript.ports.registries import RegistryStore

pytestmark = pytest.mark.req("O-02", "X-02")

FIRST, SECOND = "https://one.example.com", "https://two.example.com"
TERMS = frozenset({1, 2})


@pytest.fixture
def store(database: Database) -> RegistryStore:
    return SqlRegistries(database)


def make(name: str, registry: str = FIRST) -> RegistryEntry:
    return read_entry(registry, {"server": describe_server(name)})


async def test_entries_change_with_their_terms(store: RegistryStore) -> None:
    old, other = make("a.b/old"), make("a.b/other")
    await store.save(FIRST, "2026-01-01", [old, other], {old.id: TERMS, other.id: frozenset({2})}, [])
    assert await store.list_entries(FIRST) == [old, other]
    counts = await store.count_terms([1, 2, 3])
    assert (counts.documents, dict(counts.documents_with_term)) == (2, {1: 1, 2: 2})
    new = replace(old, version="2.0.0")
    await store.save(FIRST, "2026-02-01", [new], {new.id: frozenset({3})}, [other.id, "unknown"])
    assert await store.list_entries() == [new]
    counts = await store.count_terms([1, 2, 3])
    assert (counts.documents, dict(counts.documents_with_term)) == (1, {3: 1})
    assert await store.list_registries() == {FIRST: "2026-02-01"}


async def test_each_registry_has_its_own_entries(store: RegistryStore) -> None:
    ours, theirs = make("A.b/same"), make("a.B/same", SECOND)
    for entry in (ours, theirs):
        await store.save(entry.registry, "", [entry], {entry.id: TERMS}, [])
    assert await store.find_by_name("a.b/SAME") == sorted([ours, theirs], key=lambda each: each.id)
    assert await store.get_entries([ours.id, "unknown"]) == {ours.id: ours}
    assert await store.remove_registry(SECOND) is True
    assert await store.remove_registry(SECOND) is False
    assert await store.list_entries() == [ours]
    assert (await store.count_terms([1])).documents == 1
