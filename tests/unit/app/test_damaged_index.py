"""A damaged collection of the index is rebuilt by a gateway, and leaves everything else working for commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fixtures.catalogue import ITEMS
from toolscript.app.app import open_app
from toolscript.app.collections import ALL
from toolscript.domain.documents import Document
from toolscript.domain.errors import IndexDamaged
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.services.catalogue.skill_points import SKILLS
from toolscript.services.documents.points import DOCUMENTS
from toolscript.services.knowledge.points import CHUNKS, EXTRACTIONS
from toolscript.settings import Settings
from toolscript.surfaces.cli.commands.gateway import _repair_knowledge

pytestmark = [pytest.mark.req("X-12"), pytest.mark.slow]

SERVERS = {item.server for item in ITEMS}
TENANT = "anna"


@pytest.fixture
async def filled(small: Settings, tmp_path: Path) -> Settings:
    book = tmp_path / "tides.md"
    book.write_text("# Tides\n\nThe moon pulls the water of the harbour up twice a day.\n")
    async with open_app(small) as app:
        await app.catalogue.sync.configure(SERVERS)
        await app.catalogue.sync.run(ITEMS)
        await app.texts.ingest_documents.put(TENANT, [Document("d1", "The harbour", "Ships come in with the tide.")])
        await app.texts.ingest_knowledge.ingest(book)
    return small


def damage(settings: Settings, name: str, ending: str) -> None:
    folder = settings.data / "index" / name
    for file in [each for each in folder.rglob("*") if str(each).endswith(ending)]:
        os.truncate(file, 0)


@pytest.mark.parametrize("ending", ["status.dat", "collection.json"])
async def test_a_gateway_rebuilds_damaged_collections_from_the_store(
    filled: Settings, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    for name in ALL:
        damage(filled, name, ending)
    async with open_app(filled, serving=True) as app:
        await app.catalogue.sync.configure(SERVERS)
        await app.texts.ingest_documents.repair()
        await _repair_knowledge(app)
        counts = await app.count_points()
        assert counts.pop(EXTRACTIONS) == 0
        assert counts.keys() == {TOOLS, SKILLS, DOCUMENTS, CHUNKS}
        assert counts[TOOLS] == len(ITEMS)
        assert all(counts.values())
    rebuilt = [r for r in caplog.records if r.getMessage() == "damaged_index_rebuilt_from_the_store"]
    assert [vars(record)["collection"] for record in rebuilt] == [*ALL]


@pytest.mark.parametrize("ending", ["status.dat", "collection.json"])
async def test_a_command_uses_what_is_not_damaged(filled: Settings, ending: str) -> None:
    damage(filled, DOCUMENTS, ending)
    async with open_app(filled) as app:
        assert await app.count_indexed_tools() == len(ITEMS)
        with pytest.raises(IndexDamaged, match=r"the index documents is damaged .*`toolscript index rebuild`"):
            await app.index.count(DOCUMENTS)
        with pytest.raises(IndexDamaged):
            await app.texts.ingest_documents.put(TENANT, [Document("d2", "New", "Refused.")])
    async with open_app(filled, fresh_index=True) as app:
        await app.texts.ingest_documents.index_all()
        assert await app.index.count(DOCUMENTS) > 0
