"""Steps toward requests: reversible, from the vectors of texts each time, and never in the index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolscript.app.app import App, open_app
from toolscript.domain.access import Caller
from toolscript.domain.catalog import Item
from toolscript.domain.errors import Unavailable
from toolscript.domain.feedback import Verdict
from toolscript.domain.search import Vector
from toolscript.retrieval.feedback_steps import MIN_COSINE
from toolscript.services.catalogue import learning
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.settings import Settings, load_settings

pytestmark = pytest.mark.slow

TOOL, OTHER = "git__git_commit", "git__git_log"
REQUEST = "put my latest changes into version control"
ADA = Caller(key="ada")
ITEMS = [item for item in load_demo_items() if item.server in {"git", "email", "weather"}]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(variables={}, data_dir=tmp_path / "data", search_model="hashed-64", quarantine="open")


@pytest.fixture
async def app(settings: Settings) -> AsyncIterator[App]:
    async with open_app(settings) as opened:
        await opened.catalogue.sync.run(ITEMS)
        yield opened


async def read_vector(app: App, tool: str = TOOL) -> Vector:
    """The vector that searches order near equals by: after a step that counts, else that of the text."""
    snapshot = app.catalogue.snapshots.current()
    step, facts = (await snapshot.steps()).get(tool), await snapshot.facts()
    if step is not None and step.vector is not None and step.item_digest == facts.items[tool].digest:
        return step.vector
    return await read_original(app, tool)


async def read_original(app: App, tool: str = TOOL) -> Vector:
    return (await app.catalogue_index.vectors(TOOLS, [tool]))[tool]


async def learn(app: App, tool: str = TOOL, *requests: str) -> None:
    for request in requests or (REQUEST,):
        await app.tools.feedback.mark(ADA, tool, request)
    await app.tools.feedback.apply()


def change_text(tool: str) -> list[Item]:
    items = ITEMS
    return [replace(item, description="Record a snapshot") if item.id == tool else item for item in items]


async def test_a_tool_moves_a_bounded_step_toward_what_it_served(app: App) -> None:
    assert app.model.embedder is not None
    goal, before = await app.model.embedder.embed_query(REQUEST), await read_vector(app)
    others = await read_vector(app, OTHER)
    await learn(app)
    after = await read_vector(app)
    assert float(after @ goal) > float(before @ goal)
    assert 1 > float(after @ before) >= MIN_COSINE - 1e-4
    assert np.allclose(await read_vector(app, OTHER), others)


async def test_steps_do_not_add_up(app: App) -> None:
    await learn(app)
    once = await read_vector(app)
    await app.tools.feedback.apply()
    await app.catalogue.sync.index_catalogue()
    assert np.allclose(await read_vector(app), once)


async def test_a_reset_brings_the_original_vector_back(app: App) -> None:
    before, kept = await read_vector(app), await read_vector(app, OTHER)
    await learn(app)
    await learn(app, OTHER)
    assert await app.tools.feedback.reset(TOOL) == 1
    assert np.allclose(await read_vector(app), before, atol=1e-6)
    assert not np.allclose(await read_vector(app, OTHER), kept)
    assert await app.tools.feedback.reset() == 1
    assert np.allclose(await read_vector(app, OTHER), kept, atol=1e-6)
    assert await app.tools.feedback.list() == []


async def test_what_one_key_taught_is_forgotten_alone(app: App) -> None:
    before = await read_vector(app)
    await learn(app, OTHER)
    other = await read_vector(app, OTHER)
    for tool in (TOOL, OTHER):
        await app.tools.feedback.mark(Caller(key="bad"), tool, "what is the weather?")
    await app.tools.feedback.apply()
    assert not np.allclose(await read_vector(app), before)
    assert [each.keys for each in await app.tools.feedback.list()] == [{"ada": 1, "bad": 1}, {"bad": 1}]
    assert await app.tools.feedback.reset(key="bad") == 2
    assert np.allclose(await read_vector(app), before, atol=1e-6)
    assert np.allclose(await read_vector(app, OTHER), other, atol=1e-6)
    assert [each.keys for each in await app.tools.feedback.list()] == [{"ada": 1}]


async def test_a_sync_keeps_the_steps_and_writes_nothing(app: App) -> None:
    await learn(app)
    moved = await read_vector(app)
    report = await app.catalogue.sync.run(ITEMS)
    assert (report.indexed, report.embedded, report.classified) == (0, 0, 0)
    assert np.allclose(await read_vector(app), moved)


async def test_the_index_has_the_vectors_of_texts_and_is_not_written(app: App) -> None:
    before = {c.id: c.payload for c in await app.catalogue_index.scroll(TOOLS)}
    vector = await read_original(app)
    await learn(app)
    assert not np.allclose(await read_vector(app), vector)
    assert np.array_equal(await read_original(app), vector)
    assert {c.id: c.payload for c in await app.catalogue_index.scroll(TOOLS)} == before


async def test_a_changed_text_starts_again_from_its_new_vector(app: App) -> None:
    await learn(app)
    old = await read_vector(app)
    await app.catalogue.sync.run(change_text(TOOL))
    (entry,) = await app.tools.feedback.list()
    await app.tools.feedback.apply()
    (after,) = await app.tools.feedback.list()
    assert (entry.item_id, after.step and after.step.refusal) == (TOOL, "")
    moved = await read_vector(app)
    await app.tools.feedback.reset()
    fresh = await read_vector(app)
    assert not np.allclose(moved, old)
    assert 1 > float(moved @ fresh) >= MIN_COSINE - 1e-4


async def test_while_feedback_is_off_the_original_vectors_are_searched(app: App, settings: Settings) -> None:
    before = await read_vector(app)
    await learn(app)
    moved = await read_vector(app)
    await app.catalogue_index.close()
    async with open_app(replace(settings, feedback=False)) as silent:
        assert np.allclose(await read_vector(silent), before, atol=1e-6)
        with pytest.raises(Unavailable, match="TOOLSCRIPT_FEEDBACK"):
            await silent.tools.feedback.mark(ADA, TOOL, REQUEST)
        with pytest.raises(Unavailable, match="TOOLSCRIPT_FEEDBACK"):
            await silent.tools.feedback.apply()
        await silent.catalogue_index.close()
    async with open_app(settings) as again:
        await again.catalogue.sync.configure({item.server for item in ITEMS})
        assert np.allclose(await read_vector(again), moved, atol=1e-6)


async def test_a_start_learns_from_what_another_gateway_recorded(app: App, settings: Settings) -> None:
    await app.stores.feedback.add_verdict(Verdict(TOOL, REQUEST), max_per_item=9, max_per_caller=9, max_of_caller=9)
    await app.catalogue_index.close()
    async with open_app(settings) as started:
        await started.catalogue.sync.configure({item.server for item in ITEMS})
        async with asyncio.timeout(60):
            while not await started.stores.feedback.get_steps():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert [entry.item_id for entry in await started.tools.feedback.list() if entry.step] == [TOOL]


@pytest.fixture
def embedded(app: App, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that the model has embedded; one that contains `unknown` makes it fail."""
    embedder: Any = app.model.embedder
    found: list[str] = []
    original = embedder.embed_query

    async def embed(text: str) -> Any:
        if "unknown" in text:
            raise Unavailable("the model does not answer")
        found.append(text)
        return await original(text)

    monkeypatch.setattr(embedder, "embed_query", embed)
    return found


async def test_requests_are_embedded_once(app: App, embedded: list[str]) -> None:
    await learn(app)
    await app.tools.feedback.apply()
    await learn(app, OTHER, "show the history")
    assert embedded.count(REQUEST) == 1
    assert embedded.count("show the history") == 1


async def test_a_run_that_was_interrupted_does_not_embed_again(
    app: App, embedded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "SAVE_EVERY", 1)
    await app.tools.feedback.mark(ADA, TOOL, REQUEST)
    await app.tools.feedback.mark(ADA, TOOL, "the unknown")
    for _ in range(2):
        with pytest.raises(Unavailable, match="does not answer"):
            await app.tools.feedback.apply()
    assert embedded.count(REQUEST) == 1


async def test_a_success_of_a_vanished_tool_waits_for_its_return(app: App) -> None:
    await learn(app)
    await app.catalogue.sync.run([item for item in ITEMS if item.id != TOOL])
    assert [entry.step for entry in await app.tools.feedback.list()] == [None]
    await app.tools.feedback.apply()
    assert [entry.step for entry in await app.tools.feedback.list()] == [None]
    await app.catalogue.sync.run(ITEMS)
    await app.tools.feedback.apply()
    assert [entry.step is not None for entry in await app.tools.feedback.list()] == [True]
