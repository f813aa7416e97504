"""What every store of workflows promises: versions stay, and the newest one counts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolscript.adapters.sql import workflows
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.workflows import SqlWorkflows
from toolscript.domain.programs import Language, Workflow, WorkflowCase

pytestmark = pytest.mark.req("C-03")

GREETING = Workflow(
    "greet",
    "Greets someone.",
    Language.TYPESCRIPT,
    "return `hello ${params.name}`;",
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    (WorkflowCase({"name": "Ann"}, "hello Ann"), WorkflowCase({"name": "日本"}, ["any", {"json": None}])),
    {"type": "string"},
    is_read_only=True,
    saved_at=1000.5,
    saved_by="ann",
)


@pytest.fixture
def store(database: Database) -> SqlWorkflows:
    return SqlWorkflows(database)


async def test_a_workflow_comes_back_as_it_was_saved(store: SqlWorkflows) -> None:
    saved = await store.save(GREETING)
    assert saved == replace(GREETING, version=1)
    assert await store.list_newest() == [saved]
    assert await store.list_versions("greet") == [saved]


async def test_versions_stay_and_the_newest_counts(store: SqlWorkflows) -> None:
    first = await store.save(GREETING)
    other = await store.save(replace(GREETING, name="a_first"))
    second = await store.save(replace(GREETING, source="return 2;", cases=()))
    assert (first.version, second.version) == (1, 2)
    assert await store.list_newest() == [other, second]
    assert await store.list_versions("greet") == [second, first]
    assert (await store.find("greet"), await store.find("greet", 1)) == (second, first)
    assert (await store.find("greet", 3), await store.find("unknown")) == (None, None)


async def test_a_workflow_without_a_result_has_none(store: SqlWorkflows) -> None:
    saved = await store.save(replace(GREETING, result=None))
    assert await store.find("greet") == saved
    assert saved.result is None


async def test_only_the_newest_versions_are_kept(store: SqlWorkflows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "MAX_VERSIONS", 3)
    other = await store.save(replace(GREETING, name="other"))
    for _ in range(5):
        await store.save(GREETING)
    assert [each.version for each in await store.list_versions("greet")] == [5, 4, 3]
    assert await store.list_versions("other") == [other]


async def test_a_removed_workflow_is_gone_with_all_versions(store: SqlWorkflows) -> None:
    await store.save(GREETING)
    await store.save(replace(GREETING, source="return 2;"))
    assert await store.remove("greet")
    assert not await store.remove("greet")
    assert await store.list_newest() == []
    assert await store.list_versions("greet") == []


async def test_gateways_that_save_at_a_time_get_different_versions(store: SqlWorkflows, database: Database) -> None:
    other = SqlWorkflows(database)
    saved = await asyncio.gather(*(each.save(GREETING) for each in (store, other) for _ in range(5)))
    assert sorted(workflow.version for workflow in saved) == list(range(1, 11))
