"""What every store of workflows promises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.workflows import SqlWorkflows
from toolscript.domain.programs import Language, Workflow

pytestmark = pytest.mark.req("C-03")

GREETING = Workflow(
    "greet",
    "Greets someone.",
    Language.TYPESCRIPT,
    "return `hello ${params.name}`;",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    result={"type": "string", "title": "日本"},
    is_read_only=True,
    saved_at=1000.5,
    saved_by="ann",
)


@pytest.fixture
def store(database: Database) -> SqlWorkflows:
    return SqlWorkflows(database)


async def test_a_workflow_comes_back_as_it_was_saved(store: SqlWorkflows) -> None:
    await store.save(GREETING)
    assert await store.find("greet") == GREETING
    assert await store.find("unknown") is None


async def test_saving_again_replaces_the_one_of_that_name(store: SqlWorkflows) -> None:
    changed = replace(GREETING, source="return 2;", result=None, is_read_only=False)
    other = replace(GREETING, name="a_first")
    for each in (GREETING, other, changed):
        await store.save(each)
    assert await store.list_all() == [other, changed]


async def test_a_removed_workflow_is_gone(store: SqlWorkflows) -> None:
    await store.save(GREETING)
    assert await store.remove("greet")
    assert not await store.remove("greet")
    assert await store.list_all() == []
