"""Two embedding models: one for tools, and one for documents and knowledge."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fixtures.http_services import SHIPPED
from toolscript.adapters.onnx.model_folders import PACKAGED
from toolscript.app.app import App, open_app
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.services.documents.points import DOCUMENTS
from toolscript.settings import DEFAULT_MODEL, Settings, load_settings

BGE = "bge-small-en-v1.5"


@pytest.fixture
def trained(tmp_path: Path) -> Settings:
    """Settings with a model in a folder that is trained for tools."""
    folder = tmp_path / "mine"
    shutil.copytree(SHIPPED, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"trained_for": "tools"}), encoding="utf-8")
    return load_settings(data_dir=tmp_path / "data", search_model=str(folder))


def find_text_model(app: App) -> str:
    assert app.text_model.embedder is not None
    return app.text_model.embedder.model


@pytest.mark.req("S-07")
async def test_one_model_serves_everything_unless_it_is_trained_for_tools(small: Settings) -> None:
    async with open_app(small) as app:
        assert app.text_model is app.model


@pytest.mark.extended
@pytest.mark.req("S-07")
async def test_beside_a_model_for_tools_documents_have_the_packaged_one(trained: Settings) -> None:
    async with open_app(trained) as app:
        await app.catalogue.sync.run(load_demo_items())
        await app.texts.ingest_documents.put("a tenant", [Document("1", "red wine")])
        assert find_text_model(app) == PACKAGED
        tools, documents = [await app.index.describe(name) for name in (TOOLS, DOCUMENTS)]
        assert tools is not None
        assert tools.model.startswith("mine-")
        assert documents is not None
        assert documents.model == PACKAGED
        assert (await app.tools.search.search("put my changes into version control")).hits[0].id == "git__git_commit"


@pytest.mark.slow
@pytest.mark.req("S-07", "X-03")
async def test_documents_keep_the_model_that_they_are_indexed_with(small: Settings) -> None:
    models = small.data / "models"
    models.mkdir(parents=True)
    (models / BGE).symlink_to(SHIPPED, target_is_directory=True)
    async with open_app(replace(small, search_model=BGE)) as app:
        await app.texts.ingest_documents.put("a tenant", [Document("1", "red wine")])
    default = replace(small, search_model=DEFAULT_MODEL)  # is trained for tools
    async with open_app(default) as app:
        assert find_text_model(app) == BGE
        assert await app.index.count(DOCUMENTS) == 1
    async with open_app(default, fresh_index=True) as app:
        assert find_text_model(app) == PACKAGED
        assert await app.texts.ingest_documents.index_all() == 1


@pytest.mark.slow
@pytest.mark.req("S-07")
async def test_an_empty_index_of_documents_keeps_no_model(small: Settings) -> None:
    async with open_app(small):
        pass
    async with open_app(replace(small, search_model=DEFAULT_MODEL)) as app:
        assert find_text_model(app) == PACKAGED


@pytest.mark.slow
@pytest.mark.req("S-07")
async def test_a_setting_selects_the_model_of_documents(small: Settings) -> None:
    async with open_app(replace(small, text_model="hashed-32")) as app:
        assert app.model.embedder is not None
        assert (app.model.embedder.model, find_text_model(app)) == ("hashed-64", "hashed-32")
        await app.catalogue.sync.run(load_demo_items()[:5])
        await app.texts.ingest_documents.put("a tenant", [Document("1", "red wine")])
        assert await app.index.count(TOOLS) == 5
        assert await app.index.count(DOCUMENTS) == 1


@pytest.mark.extended
@pytest.mark.req("S-08")
async def test_a_broken_model_of_documents_leaves_tools_alone(
    trained: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    broken = trained.data / "models" / PACKAGED
    shutil.copytree(SHIPPED, broken)
    (broken / "tokenizer.json").unlink()
    async with open_app(trained) as app:
        assert app.model.embedder is not None
        assert app.text_model.embedder is None
    assert "no_model" in caplog.text
    with pytest.raises(Invalid, match="no usable model"):
        async with open_app(replace(trained, text_model=PACKAGED)):
            pass
