"""The model in a process of its own: the same vectors, nothing lost when it ends, nothing left behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from toolscript.adapters.onnx.embedder import LONGEST_APART, TOGETHER_BEFORE, OnnxEmbedder
from toolscript.adapters.onnx.model_folders import PACKAGED, ModelFolder, find_locally
from toolscript.adapters.onnx.worker_client import ModelApart
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Vector

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there are no such sockets")

TEXTS = ["", "send a mail", "größer 🚀 \x00 \ud800", "word " * 1000, *(f"book a table for {n}" for n in range(12))]


@pytest.fixture
def folder() -> ModelFolder:
    found = find_locally(PACKAGED, Path("nowhere"))
    assert found
    return found


@pytest.fixture
async def embedder(folder: ModelFolder) -> AsyncIterator[OnnxEmbedder]:
    embedder = OnnxEmbedder(folder, device="cpu", apart=True)
    yield embedder
    await embedder.close()


async def _ready(folder: ModelFolder) -> ModelApart:
    apart = await ModelApart.started(folder, 2)
    assert apart
    await _until(lambda: apart.is_ready)
    return apart


async def _until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  (what is waited for happens in another process)
            await asyncio.sleep(0.01)


async def _together(embedder: OnnxEmbedder, texts: list[str]) -> list[Vector]:
    return [rows[0] for rows in await asyncio.gather(*(embedder.embed_queries([text]) for text in texts))]


def _children() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if "onnx_child" in " ".join(p.cmdline())]


async def test_a_process_of_its_own_gives_the_same_vectors_to_the_last_digit(folder: ModelFolder) -> None:
    apart = await _ready(folder)
    embedder = OnnxEmbedder(folder, device="cpu")
    try:
        texts = [text.encode("utf-8", "replace").decode() for text in TEXTS]
        told = await asyncio.gather(*map(apart.embed, texts))
        assert np.array_equal(np.array(told), np.array(await embedder.embed_documents(texts)))
    finally:
        await apart.close()
        await embedder.close()


async def test_only_queries_that_keep_coming_together_start_a_process(embedder: OnnxEmbedder) -> None:
    for n in range(TOGETHER_BEFORE + 1):
        await embedder.embed_queries([f"one after the other {n}"])
    await embedder.embed_documents([f"document {n}" for n in range(TOGETHER_BEFORE + 1)])
    assert not _children()
    before = await _together(embedder, [f"together {n}" for n in range(TOGETHER_BEFORE + 2)])
    await _until(_children)
    await _until(lambda: embedder._apart() is not None)
    after = await _together(embedder, [f"together {n}" for n in range(TOGETHER_BEFORE + 2)])
    assert np.array_equal(np.array(before[1:]), np.array(after[1:]))  # the first was alone, on all cores


async def test_nobody_notices_when_the_process_is_killed(embedder: OnnxEmbedder) -> None:
    await _together(embedder, [f"together {n}" for n in range(TOGETHER_BEFORE + 2)])
    await _until(lambda: embedder._apart() is not None)
    asked = asyncio.create_task(_together(embedder, [f"later {n}" for n in range(40)]))
    await asyncio.sleep(0)
    (child,) = _children()
    child.send_signal(signal.SIGKILL)
    told = await asked
    alike = await embedder.embed_documents([f"later {n}" for n in range(40)])
    assert np.array_equal(np.array(told[1:]), np.array(alike[1:]))
    assert len(await _together(embedder, ["and", "then"])) == 2


async def test_a_process_that_stops_answering_is_given_up(folder: ModelFolder) -> None:
    apart = await ModelApart.started(folder, 2, patience=0.0)
    assert apart
    await _until(lambda: apart.is_ready)
    (child,) = _children()
    child.suspend()
    waiting = asyncio.create_task(apart.embed("a"))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await apart.embed("b")
    with pytest.raises(Unavailable):
        await waiting
    assert not apart.is_ready
    await apart.close()
    assert not _children()


async def test_whoever_waits_is_told_when_the_process_ends_and_whoever_asks_then_too(folder: ModelFolder) -> None:
    apart = await _ready(folder)
    waiting = asyncio.create_task(apart.embed("a"))
    await asyncio.sleep(0)
    await apart.close()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await apart.embed("b")
    await apart.close()


async def test_no_key_of_ours_is_in_the_environment_of_the_process(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_API_KEY", "the-key")
    apart = await _ready(folder)
    (child,) = _children()
    environment = child.environ()
    await apart.close()
    assert environment["PYTHONPATH"]
    assert "the-key" not in environment.values()


async def test_a_process_that_is_asked_to_end_goes_on_until_we_end_it(folder: ModelFolder) -> None:
    """Ctrl-C in a terminal is meant for all processes there; requests under way are answered first."""
    apart = await _ready(folder)
    (child,) = _children()
    child.send_signal(signal.SIGINT)
    child.terminate()
    assert len(await apart.embed("a")) == folder.card.dimensions
    await apart.close()
    assert not _children()


async def test_where_no_process_can_be_had_there_is_none_and_that_is_told(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert await ModelApart.started(folder, 1) is None
    assert [record.message for record in caplog.records] == ["model_not_apart"]


async def test_whoever_has_gone_away_is_not_answered(folder: ModelFolder) -> None:
    apart = await _ready(folder)
    gone = asyncio.create_task(apart.embed("a"))
    await asyncio.sleep(0)
    gone.cancel()
    assert len(await apart.embed("b")) == folder.card.dimensions
    await apart.close()


async def test_a_query_that_is_too_long_for_the_socket_is_embedded_here(embedder: OnnxEmbedder) -> None:
    await _together(embedder, [f"together {n}" for n in range(TOGETHER_BEFORE + 2)])
    await _until(lambda: embedder._apart() is not None)
    long = "größer " * LONGEST_APART
    first, second = await _together(embedder, ["a", long])
    assert np.array_equal(second, (await embedder.embed_documents([long]))[0])
    assert len(first) == len(second)


async def test_closing_leaves_no_process_behind(folder: ModelFolder) -> None:
    embedder = OnnxEmbedder(folder, device="cpu", apart=True)
    await _together(embedder, [f"together {n}" for n in range(TOGETHER_BEFORE + 2)])
    await _until(_children)
    await embedder.close()
    assert not _children()


def test_a_process_whose_parent_is_killed_ends_by_itself(folder: ModelFolder) -> None:
    start = (
        "import asyncio, os, signal, sys\n"
        "from pathlib import Path\n"
        "from toolscript.adapters.onnx.model_folders import PACKAGED, find_locally\n"
        "from toolscript.adapters.onnx.worker_client import ModelApart\n"
        "async def main():\n"
        "    apart = await ModelApart.started(find_locally(PACKAGED, Path('nowhere')), 2)\n"
        "    while not apart.is_ready: await asyncio.sleep(0.01)\n"
        "    print(apart._child.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    told = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=False)
    child = int(told.stdout)
    with_child = [psutil.Process(child)] if psutil.pid_exists(child) else []
    _, alive = psutil.wait_procs(with_child, timeout=30)
    assert told.returncode == -signal.SIGKILL
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
