"""The embedding cache: unchanged items are embedded once, even if the index is lost or the configuration changes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.examples import choose
from toolscript.app.app import open_app
from toolscript.domain.catalog import Item
from toolscript.services.catalogue.tool_points import TOOLS
from toolscript.settings import Settings

pytestmark = [pytest.mark.req("S-10"), pytest.mark.slow]

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
A, B = Item("one", "a", "Read a file", input_schema=SCHEMA), Item("one", "b", "Write a file")
C = Item("two", "c", "Send mail")


def files(settings: Settings) -> list[Path]:
    return sorted((settings.data / "cache" / "embeddings").glob("embeddings-*.json"))


async def count_embedded(settings: Settings, items: list[Item], *, fresh: bool = False) -> int:
    """The number of texts that a run with these items embeds."""
    async with open_app(settings, fresh_index=fresh) as app:
        await app.sync.configure({item.server for item in items})
        for server in {item.server for item in items}:
            await app.sync.run([i for i in items if i.server == server], servers=[server])
        assert await app.index.count(TOOLS) == len(items)
        return app.sync.embedded


async def test_a_first_run_writes_one_file_with_model_version_and_hashes(small: Settings) -> None:
    assert await count_embedded(small, [A, B]) == 2
    (file,) = files(small)
    content = json.loads(file.read_text())
    assert (content["model"], content["version"], content["servers"]) == ("hashed-64", 1, ["one"])
    assert set(content["tools"]) == {"one__a", "one__b"}
    assert all(entry["hash"] for entry in content["tools"].values())


async def test_a_restart_embeds_nothing_even_when_the_index_is_lost(small: Settings) -> None:
    await count_embedded(small, [A, B])
    assert await count_embedded(small, [A, B]) == 0
    assert await count_embedded(small, [A, B], fresh=True) == 0


async def test_after_a_changed_schema_only_that_tool_is_embedded(small: Settings) -> None:
    await count_embedded(small, [A, B])
    changed = replace(A, input_schema={**SCHEMA, "required": ["path"]})
    assert await count_embedded(small, [changed, B]) == 1
    assert await count_embedded(small, [changed, B], fresh=True) == 0


@pytest.mark.extended
async def test_another_configuration_has_another_file_and_reuses_unchanged_vectors(small: Settings) -> None:
    await count_embedded(small, [A, B])
    assert await count_embedded(small, [A, B, C]) == 1
    assert len(files(small)) == 2
    cached = [set(json.loads(f.read_text())["tools"]) for f in files(small)]
    assert {"one__a", "one__b", "two__c"} in cached
    assert await count_embedded(small, [A, B]) == 0
    assert await count_embedded(small, [C], fresh=True) == 0


async def test_another_model_embeds_everything_again(small: Settings) -> None:
    await count_embedded(small, [A, B])
    assert await count_embedded(replace(small, search_model="hashed-32"), [A, B]) == 2
    assert await count_embedded(replace(small, search_model="hashed-32"), [A, B], fresh=True) == 0


@pytest.mark.parametrize(
    "damage", choose([b"", b"{", b"[]", b'{"version": 1}', b"\xff\xfe"], b"{", b'{"version": 1}', b"\xff\xfe")
)
async def test_after_a_damaged_file_everything_is_embedded_again(small: Settings, damage: bytes) -> None:
    await count_embedded(small, [A, B])
    files(small)[0].write_bytes(damage)
    assert await count_embedded(small, [A, B], fresh=True) == 2
    assert await count_embedded(small, [A, B], fresh=True) == 0


async def test_without_the_cache_every_start_embeds_everything_and_writes_no_file(small: Settings) -> None:
    await count_embedded(small, [A, B])
    (file,) = files(small)
    before = file.read_bytes()
    uncached = replace(small, search_no_cache=True)
    for _ in range(2):
        assert await count_embedded(uncached, [A, B, C]) == 3
    assert files(small) == [file]
    assert file.read_bytes() == before


async def test_servers_that_are_no_longer_configured_are_removed_from_catalogue_and_index(small: Settings) -> None:
    await count_embedded(small, [A, B, C])
    async with open_app(small) as app:
        await app.sync.configure(["two"])
        assert [m.id for m in await app.item_store.get_fingerprints() if m.is_active] == ["two__c"]
        assert [c.id for c in await app.index.scroll(TOOLS)] == ["two__c"]
        assert (await app.item_store.count_terms([])).documents == 1


async def test_an_index_that_lost_its_points_gets_them_back_when_the_servers_are_known(small: Settings) -> None:
    await count_embedded(small, [A, B])
    async with open_app(small, fresh_index=True) as app:
        await app.sync.configure(["one"])
        assert await app.index.count(TOOLS) == 2
        assert app.sync.embedded == 0


@pytest.mark.req("G-03", "S-02")
async def test_concurrent_searches_after_a_change_all_see_it(small: Settings) -> None:
    async with open_app(small) as app:
        await app.sync.run([A, B])
        await app.tool_search.search("a")
        await app.sync.run([C])
        found = await asyncio.gather(*(app.tool_search.search("c", threshold=0.0) for _ in range(5)))
        assert [[hit.id for hit in each.hits] for each in found] == [["two__c"]] * 5
