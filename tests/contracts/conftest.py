"""One fixture per port, parametrised over every adapter of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contracts.engines import INDEXES, open_index
from tests.fixtures.databases import open_memory_database
from tests.fixtures.examples import choose
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.stores import ItemStore, SkillStore

# SQLite in memory differs by its address alone, and most other tests use it.
STORES = choose(["sqlite-file", "sqlite-memory", "postgres"], "sqlite-file", "postgres")


@pytest.fixture(params=INDEXES)
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorIndex]:
    opened = open_index(request.param, tmp_path, request)
    yield opened
    await opened.close()


@pytest.fixture(params=STORES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    match request.param:
        case "sqlite-file":
            opened = Database(f"sqlite:///{tmp_path / 'store.db'}")
        case "sqlite-memory":
            opened = open_memory_database()
        case _:
            opened = Database(request.getfixturevalue("postgres"))
    yield opened
    await opened.close()


@pytest.fixture
def item_store(database: Database) -> ItemStore:
    return SqlItems(database)


@pytest.fixture
def skill_store(database: Database) -> SkillStore:
    return SqlSkills(database)
