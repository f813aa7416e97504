"""The composition root: which adapters the settings select, and what happens if one cannot be opened."""

from __future__ import annotations

import logging
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.examples import choose
from tests.fixtures.http_services import SHIPPED, EmbeddingsApi, Hub, hub_layout
from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.onnx.model_folders import PACKAGED, find_model_card
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.app.access import open_keys
from toolscript.app.app import App, open_app
from toolscript.domain.access import AccessKey, Scope
from toolscript.domain.catalog import Item
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid, Unavailable
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.services.documents.points import DOCUMENTS
from toolscript.settings import DEFAULT_MODEL, Settings, load_settings

BGE = "Xenova/bge-small-en-v1.5"
# Embedding the other fifty tools of the demo takes most of a test's time.
FEW_ITEMS = [
    item
    for item in load_demo_items()
    if item.id in {"filesystem__read_file", "filesystem__move_file", "git__git_commit", "email__send_email"}
]


async def first_hit(app: App, query: str) -> str:
    await app.catalogue.sync.run(FEW_ITEMS)
    return (await app.tools.search.search(query)).hits[0].id


@pytest.mark.slow
@pytest.mark.req("S-08")
async def test_without_network_the_packaged_model_is_used_and_the_fallback_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings(data_dir=tmp_path, search_model=BGE)
    async with open_app(settings) as app:
        assert app.model.embedder is not None
        assert app.model.embedder.model == DEFAULT_MODEL
        assert "cannot be reached" in str(app.model.fallback_reason)
        assert await first_hit(app, "put my changes into version control") == "git__git_commit"
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == ["model_fallback"]


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.req("S-07", "S-10")
@pytest.mark.parametrize("former", choose([BGE, PACKAGED], PACKAGED))
async def test_a_folder_of_another_model_moves_to_the_default_and_documents_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, former: str
) -> None:
    with Hub(BGE, hub_layout(tmp_path / "repository")) as hub:
        async with open_app(load_settings(data_dir=tmp_path / "data", search_model=former, hub_url=hub.root)) as app:
            await app.catalogue.sync.run(FEW_ITEMS)
            await app.texts.ingest_documents.put("a tenant", [Document("1", "red wine")])
    async with open_app(load_settings(data_dir=tmp_path / "data")) as app:
        await app.catalogue.sync.configure({item.server for item in FEW_ITEMS})
        assert app.model.embedder is not None
        assert (app.model.embedder.model, app.model.fallback_reason) == (DEFAULT_MODEL, None)
        assert await app.index.count(TOOLS) == len(FEW_ITEMS)
        assert app.text_model.embedder is not None
        assert app.text_model.embedder.model == former.rpartition("/")[2]
        assert await app.index.count(DOCUMENTS) == 1
    warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == ["embedding_cache_ignored"]


@pytest.mark.slow
@pytest.mark.req("S-07", "S-10")
async def test_another_model_rebuilds_the_index_of_tools(small: Settings) -> None:
    async with open_app(small) as app:
        await app.catalogue.sync.run(FEW_ITEMS)
    async with open_app(replace(small, search_model="hashed-32")) as app:
        await app.catalogue.sync.configure({item.server for item in FEW_ITEMS})
        assert await app.index.count(TOOLS) == len(FEW_ITEMS)
        assert (await app.tools.search.search("read_file")).hits[0].id == "filesystem__read_file"
        assert (await app.catalogue.sync.run(FEW_ITEMS)).indexed == 0


@pytest.mark.req("X-03")
async def test_another_model_is_refused_if_documents_would_be_lost(small: Settings) -> None:
    async with open_app(small) as app:
        await app.texts.ingest_documents.put("a tenant", [Document("1", "red wine")])
    other = replace(small, search_model="hashed-32")
    with pytest.raises(Invalid, match=r"indexed with model hashed-64.*toolscript index rebuild"):
        async with open_app(other):
            pass
    async with open_app(other, fresh_index=True) as app:
        assert await app.texts.ingest_documents.index_all() == 1


@pytest.mark.extended
@pytest.mark.req("H-07")
async def test_an_unregistered_model_is_calibrated_on_the_demo_pairs(tmp_path: Path) -> None:
    own = tmp_path / "my-own-model"
    shutil.copytree(SHIPPED, own)
    async with open_app(load_settings(data_dir=tmp_path / "data", search_model=str(own))) as app:
        assert app.model.embedder is not None
        similarity = app.model.embedder.similarity
        assert similarity is not None
        registered = find_model_card(PACKAGED)
        assert registered is not None
        assert registered.similarity is not None
        assert similarity.floor == pytest.approx(registered.similarity.floor, abs=0.02)
        assert similarity.ceiling == pytest.approx(registered.similarity.ceiling, abs=0.02)
        assert await first_hit(app, "put my changes into version control") == "git__git_commit"


@pytest.mark.req("H-16")
async def test_the_url_selects_the_index(tmp_path: Path, small: Settings) -> None:
    async with open_app(small) as app:
        assert isinstance(app.index, QdrantEdgeIndex)
    async with open_app(replace(small, index="memory:")) as app:
        assert isinstance(app.index, MemoryIndex)
    with pytest.raises(Unavailable, match="Qdrant does not answer"):
        async with open_app(replace(small, index="https://127.0.0.1:9", index_key="key")):
            pass
    with pytest.raises(Invalid, match=r"'ftp' is not supported.*memory:"):
        async with open_app(replace(small, index="ftp://x")):
            pass


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("mysql://x", "'mysql://x' is not usable"),
        ("sqlite:", "'sqlite:' is not usable"),
        ("sqlite:///a?mode=ro", "is not usable"),
        ("postgresql://u:secret@127.0.0.1:bad/x", "127.0.0.1:bad/x cannot be opened"),
        ("postgresql://nobody:secret@127.0.0.1:9/none", "127.0.0.1:9/none cannot be opened"),
        ("sqlite:////dev/null/x.db", "cannot be opened"),
    ],
)
async def test_a_store_that_cannot_be_opened_is_named_without_its_password(
    small: Settings, store: str, message: str
) -> None:
    with pytest.raises((Invalid, Unavailable), match=message) as caught:
        async with open_app(replace(small, store=store)):
            pass
    assert "secret" not in str(caught.value)


async def test_a_failed_start_releases_what_it_had_opened(small: Settings) -> None:
    with pytest.raises(Unavailable):
        async with open_app(replace(small, store="sqlite:////dev/null/x.db")):
            pass
    async with open_app(small):
        pass


@pytest.mark.slow
@pytest.mark.req("S-07")
async def test_an_embeddings_api_replaces_the_local_model(tmp_path: Path) -> None:
    with EmbeddingsApi() as api:
        settings = load_settings(
            data_dir=tmp_path, embeddings_url=api.url, embeddings_key="secret", search_model="their-model"
        )
        async with open_app(settings) as app:
            assert app.model.embedder is not None
            assert (app.model.embedder.model, app.model.embedder.dimensions) == ("their-model", 16)
            assert await first_hit(app, "read_file") == "filesystem__read_file"
            api.forget_last = True
            found = await app.tools.search.search("a new query, read a file")
            assert found.report.degraded == ["embedder"]
        assert "secret" not in repr(settings)


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("status", "kind", "message"), [(401, Invalid, "refuses model"), (400, Unavailable, "not answer")]
)
async def test_an_embeddings_api_that_refuses_is_named(
    tmp_path: Path, status: int, kind: type[Exception], message: str
) -> None:
    with EmbeddingsApi() as api:
        api.fail_with = status
        with pytest.raises(kind, match=message):
            async with open_app(load_settings(data_dir=tmp_path, embeddings_url=api.url, search_model="m")):
                pass


@pytest.mark.req("X-05")
async def test_a_second_application_on_the_same_folder_gets_an_error(small: Settings) -> None:
    async with open_app(small):
        with pytest.raises(Unavailable, match="in use by another process"):
            async with open_app(small):
                pass


@pytest.mark.slow
async def test_names_of_a_sync_are_found_at_once(app: App) -> None:
    await first_hit(app, "read_file")
    await app.catalogue.sync.run([*FEW_ITEMS, Item("new", "frobnicate")])
    assert (await app.tools.search.search("frobnicat")).hits[0].id == "new__frobnicate"


@pytest.mark.slow
@pytest.mark.req("S-07")
async def test_the_configured_model_is_never_silently_replaced_by_that_of_the_index(small: Settings) -> None:
    async with open_app(small) as app:
        await app.catalogue.sync.run(FEW_ITEMS)
    with pytest.raises(Invalid, match="nosuchmodel"):
        async with open_app(replace(small, search_model="nosuchmodel")):
            pass


@pytest.mark.extended
@pytest.mark.req("S-07")
async def test_two_folders_with_the_same_name_are_two_models(tmp_path: Path) -> None:
    for place in ("a", "b"):
        shutil.copytree(SHIPPED, tmp_path / place / "mine")
    (tmp_path / "b" / "mine" / "1_Pooling").mkdir()
    (tmp_path / "b" / "mine" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    settings = load_settings(data_dir=tmp_path / "data", search_model=str(tmp_path / "a" / "mine"))
    async with open_app(settings) as app:
        await app.texts.ingest_documents.put("a tenant", [Document("1", "red wine")])
    with pytest.raises(Invalid, match="index rebuild"):
        async with open_app(replace(settings, search_model=str(tmp_path / "b" / "mine"))):
            pass


@pytest.mark.slow
@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    "sent",
    [
        "not json",
        "<html>",
        "[1,2]",
        '{"foo":1}',
        '{"data":null}',
        '{"data":[{"index":0,"embedding":["x"]}]}',
        '{"data":[{"index":0,"embedding":[]}]}',
        '{"data":[{"index":0,"embedding":[NaN, 1]}]}',
        '{"data":[{"index":0,"embedding":[0.0, 0.0]}]}',
        '{"data":[{"embedding":[1.0]}, {"embedding":[1.0, 2.0]}]}',
    ],
)
async def test_an_embeddings_api_that_returns_garbage_is_named(tmp_path: Path, sent: str) -> None:
    with EmbeddingsApi() as api:
        api.say_instead = sent
        with pytest.raises(Unavailable, match="embeddings API"):
            async with open_app(load_settings(data_dir=tmp_path, embeddings_url=api.url, search_model="m")):
                pass


@pytest.mark.slow
@pytest.mark.req("H-15", "X-03")
@pytest.mark.parametrize("damage", choose(["", "{}", "[]", '{"collection": 5}'], "", "{}"))
async def test_a_damaged_index_is_named_with_its_remedy_and_a_rebuild_repairs_it(small: Settings, damage: str) -> None:
    async with open_app(small) as app:
        await app.catalogue.sync.run(FEW_ITEMS)
    (small.data / "index" / "mcp_unified_search" / "collection.json").write_text(damage)
    async with open_app(small) as app:
        with pytest.raises(Unavailable, match=r"damaged.*index rebuild"):
            await app.catalogue.sync.run(FEW_ITEMS)
    async with open_app(small, fresh_index=True) as app:
        assert (await app.catalogue.sync.index_catalogue()).indexed == len(FEW_ITEMS)


@pytest.mark.slow
@pytest.mark.req("H-15", "X-03")
async def test_an_index_without_its_points_is_named_with_its_remedy(small: Settings) -> None:
    async with open_app(small) as app:
        await app.catalogue.sync.run(FEW_ITEMS)
    shutil.rmtree(small.data / "index" / "mcp_unified_search" / "generation-1")
    with pytest.raises(Unavailable, match=r"damaged.*index rebuild"):
        async with open_app(small) as app:
            await app.catalogue.sync.run(FEW_ITEMS)


@pytest.mark.req("X-04")
async def test_only_the_owner_can_read_a_new_data_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with open_app(load_settings(data_dir=folder, search_model="hashed-64")):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.req("X-04", "X-05")
async def test_a_server_knows_the_keys_before_its_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(variables={}, data_dir=tmp_path, search_model="hashed-64")
    async with open_keys(settings) as keys:
        key, secret = await keys.create("ci", [Scope.SEARCH])
    async with open_app(settings, serving=True) as app:

        async def fail() -> list[AccessKey]:
            raise Unavailable("the store is down")

        monkeypatch.setattr(app.stores.keys, "list_keys", fail)
        assert await app.access.keys.find(secret) == key
