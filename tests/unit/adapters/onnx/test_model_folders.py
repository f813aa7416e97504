"""Where models are found, and what happens when the hub answers, is down, is silent or is broken."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.http_services import SHIPPED, Hub, hub_layout
from tests.fixtures.limits import set_limits
from toolscript.adapters.onnx.model_folders import download, find_locally, find_model_card
from toolscript.domain.errors import Invalid, Unavailable

BGE = "Xenova/bge-small-en-v1.5"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(BGE, hub_layout(tmp_path / "repository")) as double:
        yield double


@pytest.mark.slow
@pytest.mark.req("S-07")
def test_a_registered_model_is_downloaded_once_and_found_afterwards(hub: Hub, tmp_path: Path) -> None:
    cache = tmp_path / "models"
    assert find_locally(BGE, cache) is None
    fetched = download(BGE, cache, hub.root)
    assert fetched.onnx.read_bytes() == (SHIPPED / "model_quantized.onnx").read_bytes()
    assert find_locally("BAAI/bge-small-en-v1.5", cache) == fetched
    assert (fetched.card.pooling, fetched.card.window) == ("cls", 512)


@pytest.mark.slow
@pytest.mark.req("S-07")
def test_any_repository_with_an_onnx_model_can_be_named(tmp_path: Path) -> None:
    with Hub("someone/their-model", hub_layout(tmp_path / "repository")) as hub:
        fetched = download("someone/their-model", tmp_path / "models", hub.root)
        assert (fetched.card.dimensions, fetched.card.similarity) == (384, None)
        assert find_locally("someone/their-model", tmp_path / "models") == fetched


@pytest.mark.req("S-07", "X-03")
@pytest.mark.parametrize("name", ["nonsense", "nobody/nothing", "a/b/c"])
def test_an_unknown_name_is_refused_with_the_known_names(hub: Hub, tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid, match=r"unknown model.*Xenova/bge-small-en-v1\.5"):
        download(name, tmp_path / "models", hub.root)


@pytest.mark.req("S-08")
def test_a_hub_that_refuses_fails_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        download(BGE, tmp_path / "models", "http://127.0.0.1:9")
    assert not (tmp_path / "models").exists()


@pytest.mark.slow
@pytest.mark.req("S-08")
def test_a_hub_that_never_answers_fails_within_its_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, model_hub=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(Unavailable, match="cannot be reached"):
            download(BGE, tmp_path / "models", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - started < 60


@pytest.mark.slow
@pytest.mark.req("S-08")
def test_a_repository_without_a_model_is_refused(tmp_path: Path) -> None:
    broken = hub_layout(tmp_path / "repository")
    (broken / "tokenizer.json").unlink()
    with Hub(BGE, broken) as hub, pytest.raises(Invalid, match=r"tokenizer\.json"):
        download(BGE, tmp_path / "models", hub.root)
    assert find_locally(BGE, tmp_path / "models") is None


@pytest.mark.req("S-08")
def test_the_packaged_model_needs_no_hub(tmp_path: Path) -> None:
    found = find_locally("sentence-transformers/all-MiniLM-L6-v2", tmp_path)
    assert found is not None
    assert found.onnx.parent == SHIPPED


@pytest.mark.req("F-03")
def test_a_multilingual_model_is_registered_without_a_measured_similarity() -> None:
    card = find_model_card("snowflake/Snowflake-arctic-embed-m-v2.0")
    assert card is not None
    assert (card.name, card.prefix, card.similarity) == ("snowflake-arctic-embed-m-v2.0", "query: ", None)
