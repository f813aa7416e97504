"""The embedding cache may forget vectors but never returns wrong ones or fails, even with damaged files."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.fixtures.examples import choose, scale_examples
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.models.vector_cache_files import LEFTOVER_SECONDS, MAX_OTHER_FILES, EmbeddingFiles
from toolscript.domain.search import Vector

SERVERS = ["git", "files"]
TOOLS = {"git__log": "d1", "git__diff": "d2", "files__read": "d3"}


def vector_of(model: str, item_id: str, digest: str, dimensions: int = 8) -> Vector:
    """The only vector that may be found for these."""
    return HashedEmbedder(dimensions)._embed(f"{model}|{item_id}|{digest}")


def make_vectors(wanted: Mapping[str, str], model: str = "m") -> dict[str, tuple[str, Vector]]:
    return {item_id: (digest, vector_of(model, item_id, digest)) for item_id, digest in wanted.items()}


def right(found: Mapping[str, Vector], wanted: Mapping[str, str], model: str = "m") -> bool:
    return found.keys() <= wanted.keys() and all(
        v.dtype == np.float32 and np.array_equal(v, vector_of(model, i, wanted[i])) for i, v in found.items()
    )


def path_of(folder: Path, servers: Collection[str]) -> Path:
    listed = json.dumps(sorted(servers), ensure_ascii=False, separators=(",", ":"))
    return folder / f"embeddings-{hashlib.sha256(listed.encode()).hexdigest()}.json"


def put(folder: Path, servers: Collection[str], content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path_of(folder, servers).write_bytes(content)


def files_in(folder: Path, pattern: str = "*") -> list[Path]:
    return list(folder.glob(pattern))


def seal(document: object) -> bytes:
    """A file whose checksum is right, whatever else is not."""
    body = json.dumps(document, separators=(",", ":")).encode()[:-1]
    return body + b',"checksum":"' + hashlib.sha256(body).hexdigest().encode() + b'"}'


def ignore_reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(r)["reason"] for r in caplog.records if r.getMessage() == "embedding_cache_ignored"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "cache" / "embeddings"


# Purpose


@pytest.mark.req("S-10")
async def test_after_a_restart_nothing_needs_to_be_embedded(folder: Path) -> None:
    before = EmbeddingFiles(folder)
    assert await before.find(SERVERS, "m", TOOLS) == {}
    assert not await before.has(SERVERS)
    await before.keep(SERVERS, "m", make_vectors(TOOLS))
    for cache in (before, EmbeddingFiles(folder)):
        found = await cache.find(reversed_list := SERVERS[::-1], "m", TOOLS)
        assert found.keys() == TOOLS.keys()
        assert right(found, TOOLS)
        assert await cache.has(reversed_list)


@pytest.mark.req("S-10")
async def test_a_tool_that_changed_is_the_only_one_missing(folder: Path) -> None:
    cache = EmbeddingFiles(folder)
    await cache.keep(SERVERS, "m", make_vectors(TOOLS))
    changed = TOOLS | {"git__log": "d1, but different", "git__new": "d4"}
    found = await cache.find(SERVERS, "m", changed)
    assert found.keys() == {"git__diff", "files__read"}
    await cache.keep(SERVERS, "m", make_vectors({k: changed[k] for k in ("git__log", "git__new")}))
    found = await EmbeddingFiles(folder).find(SERVERS, "m", changed)
    assert found.keys() == changed.keys()
    assert right(found, changed)


@pytest.mark.req("S-10")
async def test_another_model_finds_nothing_warns_once_and_replaces_the_file(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await EmbeddingFiles(folder).keep(SERVERS, "m", make_vectors(TOOLS))
    cache = EmbeddingFiles(folder)
    for _ in range(3):
        assert await cache.find(SERVERS, "n", TOOLS) == {}
    assert ignore_reasons(caplog) == ["written by model m, current model is n"]
    await cache.keep(SERVERS, "n", make_vectors({"git__log": "d1"}, "n"))
    assert right(found := await cache.find(SERVERS, "n", TOOLS), TOOLS, "n")
    assert found.keys() == {"git__log"}
    assert await cache.find(SERVERS, "m", TOOLS) == {}


@pytest.mark.req("S-10")
async def test_a_new_configuration_takes_over_what_has_not_changed(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = EmbeddingFiles(folder)
    await cache.keep(SERVERS, "m", make_vectors(TOOLS))
    await cache.keep(["git", "web"], "m", make_vectors({"git__log": "newer", "web__get": "d5"}))
    await cache.keep(["web", "x"], "other model", make_vectors({"web__get": "d5"}, "other model"))
    wanted = {"git__log": "d1", "git__diff": "d2", "web__get": "d5", "web__put": "d6"}
    found = await cache.find(["git", "web", "x"], "m", wanted)
    assert found.keys() == wanted.keys() - {"web__put"}
    assert right(found, wanted)
    assert ignore_reasons(caplog) == []


@pytest.mark.req("S-10")
async def test_items_of_other_servers_are_removed(folder: Path) -> None:
    cache = EmbeddingFiles(folder)
    wanted = {"git__log": "1", "git__a__b": "2", "gi__t": "3", "a__b__c": "4", "a___d": "5", "nothing": "6"}
    await cache.keep(["git", "a__b", "a_"], "m", make_vectors(wanted))
    document = json.loads(path_of(folder, ["git", "a__b", "a_"]).read_bytes())
    assert document["tools"].keys() == {"git__log", "git__a__b", "a__b__c", "a___d"}


@pytest.mark.req("S-10")
async def test_the_file_is_as_documented(folder: Path) -> None:
    await EmbeddingFiles(folder).keep(["zwölf", "a b"], "m", make_vectors({"zwölf__x": "d"}))
    content = path_of(folder, ["a b", "zwölf"]).read_bytes()
    document = json.loads(content)
    entry = document["tools"].pop("zwölf__x")
    assert entry["hash"] == "d"
    vector = np.frombuffer(base64.b64decode(entry["vector"]), "<f4")
    assert np.array_equal(vector, vector_of("m", "zwölf__x", "d"))
    assert document.pop("checksum") == hashlib.sha256(content.rpartition(b',"checksum"')[0]).hexdigest()
    assert document == {"version": 1, "model": "m", "dimensions": 8, "servers": ["a b", "zwölf"], "tools": {}}
    assert files_in(folder) == [path_of(folder, ["a b", "zwölf"])]
    assert files_in(folder)[0].parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.req("S-10")
async def test_an_unchanged_cache_is_not_written_again(folder: Path) -> None:
    cache = EmbeddingFiles(folder)
    await cache.keep(SERVERS, "m", make_vectors(TOOLS))
    before = path_of(folder, SERVERS).stat().st_ino
    await cache.keep(SERVERS, "m", make_vectors(TOOLS))
    await cache.keep(SERVERS, "m", {})
    assert path_of(folder, SERVERS).stat().st_ino == before


@pytest.mark.req("S-10")
async def test_concurrent_writers_lose_nothing(folder: Path) -> None:
    cache = EmbeddingFiles(folder)
    wanted = {f"git__{n}": str(n) for n in range(40)}
    await asyncio.gather(*(cache.keep(SERVERS, "m", make_vectors({i: d})) for i, d in wanted.items()))
    found = await EmbeddingFiles(folder).find(SERVERS, "m", wanted)
    assert found.keys() == wanted.keys()


@pytest.mark.req("S-10")
async def test_vectors_of_another_process_are_found_and_kept(folder: Path) -> None:
    one, other = EmbeddingFiles(folder), EmbeddingFiles(folder)
    await one.keep(SERVERS, "m", make_vectors({"git__log": "d1"}))
    await other.keep(SERVERS, "m", make_vectors({"git__diff": "d2"}))
    assert (await one.find(SERVERS, "m", TOOLS)).keys() == {"git__log", "git__diff"}
    await one.keep(SERVERS, "m", make_vectors({"files__read": "d3"}))
    assert (await other.find(SERVERS, "m", TOOLS)).keys() == TOOLS.keys()


# Other configurations


@pytest.mark.req("S-10")
async def test_only_the_newest_files_of_other_configurations_are_read(folder: Path) -> None:
    for n in range(MAX_OTHER_FILES + 1):
        servers = ["git", f"s{n}"]
        await EmbeddingFiles(folder).keep(servers, "m", make_vectors({f"git__{n}": "d", "git__all": "d"}))
        os.utime(path_of(folder, servers), ns=(n, n))
    wanted = {f"git__{n}": "d" for n in range(MAX_OTHER_FILES + 1)}
    found = await EmbeddingFiles(folder).find(["git"], "m", wanted)
    assert found.keys() == wanted.keys() - {"git__0"}


@pytest.mark.req("S-10")
async def test_the_search_stops_when_all_is_found_and_skips_files_of_other_servers(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = EmbeddingFiles(folder)
    for age, servers in enumerate([["git", "new"], ["git", "old"], ["elsewhere"]]):
        await cache.keep(servers, "m", make_vectors({f"{servers[0]}__log": "d1"}))
        os.utime(path_of(folder, servers), ns=(10 - age, 10 - age))
    for servers in (["git", "old"], ["elsewhere"]):
        file = path_of(folder, servers)
        file.write_bytes(file.read_bytes()[:-1] + b" ")  # a reader that reads to the end finds the wrong checksum
        os.utime(file, ns=(5, 5))
    assert (await cache.find(["git"], "m", {"git__log": "d1"})).keys() == {"git__log"}
    assert ignore_reasons(caplog) == []
    assert await cache.find(["git"], "m", {"git__log": "d2"}) == {}
    assert ignore_reasons(caplog) == ["damaged: wrong checksum"]


@pytest.mark.req("S-10")
@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"servers":1,"tools":{', b'{"servers":[[]],"tools":{', b"[" * 99999]
)
async def test_an_invalid_file_of_another_configuration_is_skipped(
    folder: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    put(folder, ["git", "x"], content)
    cache = EmbeddingFiles(folder)
    for _ in range(2):
        assert await cache.find(["git"], "m", {"git__log": "d1"}) == {}
    assert len(ignore_reasons(caplog)) == 1


# Damage


def entry(of: Vector | bytes) -> dict[str, str]:
    return {"hash": "d1", "vector": base64.b64encode(of if isinstance(of, bytes) else of.tobytes()).decode()}


DOCUMENT: dict[str, Any] = {"version": 1, "model": "m", "dimensions": 8, "servers": sorted(SERVERS)}
GOOD = vector_of("m", "git__log", "d1")
NOT_A_NUMBER = np.full(8, np.nan, np.float32)
SIGNALLING = np.full(8, 0x7FA00000, np.uint32).view(np.float32)


@pytest.mark.req("S-10", "X-03")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "damaged: wrong checksum"),
        (json.dumps(DOCUMENT | {"tools": {}}).encode(), "damaged: wrong checksum"),
        (seal(DOCUMENT | {"tools": {"git__log": entry(GOOD)}})[:-40], "damaged: wrong checksum"),
        (seal(DOCUMENT | {"tools": {}, "version": 2}), "version 2, expected 1"),
        (seal(DOCUMENT | {"tools": {}, "dimensions": 0}), "vectors of another size than declared"),
        (seal(DOCUMENT | {"tools": {"git__log": entry(GOOD[:4])}}), "vectors of another size than declared"),
        (seal(DOCUMENT | {"tools": {"git__log": entry(GOOD.tobytes() + b"x")}}), "unreadable vectors"),
        (
            seal(DOCUMENT | {"tools": {"git__log": {"hash": "d1", "vector": "é" * 44}}}),
            "unreadable vectors",
        ),
        (seal(DOCUMENT | {"tools": {"git__log": entry(NOT_A_NUMBER)}}), "vectors whose length is not 1"),
        (seal(DOCUMENT | {"tools": {"git__log": entry(SIGNALLING)}}), "vectors whose length is not 1"),
        (seal(DOCUMENT | {"tools": {"git__log": entry(GOOD * 0)}}), "vectors whose length is not 1"),
        (seal(DOCUMENT | {"tools": [1]}), "not an embedding cache"),
        (seal({"version": 1}), "not an embedding cache"),
    ],
)
async def test_a_file_that_cannot_be_used_is_ignored_and_then_replaced(
    folder: Path, content: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(folder, SERVERS, content)
    cache = EmbeddingFiles(folder)
    for _ in range(2):
        assert await cache.find(SERVERS, "m", TOOLS) == {}
    assert ignore_reasons(caplog) == [reason]
    await cache.keep(SERVERS, "m", make_vectors(TOOLS))
    assert right(found := await EmbeddingFiles(folder).find(SERVERS, "m", TOOLS), TOOLS)
    assert found.keys() == TOOLS.keys()


@pytest.mark.req("S-10", "X-03")
async def test_a_full_disk_causes_a_warning_and_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = EmbeddingFiles(folder)
    await cache.keep(SERVERS, "m", make_vectors(TOOLS))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for n in range(3):
            await cache.keep(SERVERS, "m", make_vectors({"git__log": str(n)}))
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert [(r.getMessage(), vars(r)["reason"]) for r in warnings] == [
        ("embedding_cache_not_written", os.strerror(errno.ENOSPC))
    ]
    assert files_in(folder) == [path_of(folder, SERVERS)]
    assert (await cache.find(SERVERS, "m", TOOLS)).keys() == TOOLS.keys()
    await cache.keep(SERVERS, "m", make_vectors({"git__log": "n"}))
    assert (await cache.find(SERVERS, "m", {"git__log": "n"})).keys() == {"git__log"}


@pytest.mark.req("S-10", "X-03")
async def test_a_folder_that_cannot_be_created_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = EmbeddingFiles(tmp_path / "file" / "cache")
    for _ in range(2):
        await cache.keep(SERVERS, "m", make_vectors(TOOLS))
        assert await cache.find(SERVERS, "m", TOOLS) == {}
    assert [r.getMessage() for r in caplog.records].count("embedding_cache_not_written") == 1


# Writers that are killed

WRITER = """
import asyncio, os, pathlib, sys, uuid
from toolscript.adapters.models import vector_cache_files as embedding_files
from toolscript.adapters.memory import HashedEmbedder

def announce(real):
    return lambda *given: (print(generation, flush=True), real(*given))[1]

def stop(*_):
    print("here", flush=True)
    sys.stdin.read()

folder, point = sys.argv[1:]
cache, vector = embedding_files.EmbeddingFiles(pathlib.Path(folder)), HashedEmbedder(384)._embed("x")
for generation in range(1, 10**9):
    asyncio.run(cache.keep(["git"], "m", {f"git__{n}": (str(generation), vector) for n in range(1500)}))
    if generation == 1 and point == "fsync":
        os.fsync = stop
    elif generation == 1 and point == "replace":
        pathlib.Path.replace = stop
    elif generation == 1:
        embedding_files.uuid4, os.fsync = announce(uuid.uuid4), announce(os.fsync)  # prints when it begins to write
"""


def run_writer_until_killed(folder: Path, point: str, lines: int) -> str:
    """Starts a writer, kills it after that many lines, and returns the last line."""
    command = [sys.executable, "-c", WRITER, str(folder), point]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        last = [writer.stdout.readline().strip() for _ in range(lines)][-1]
        writer.kill()
    return last


def generations(folder: Path) -> set[str]:
    document = json.loads(path_of(folder, ["git"]).read_bytes())
    assert len(document["tools"]) == 1500
    return {each["hash"] for each in document["tools"].values()}


@pytest.mark.slow
@pytest.mark.req("S-10")
@pytest.mark.parametrize("lines", choose([1, 2, 3, 5, 7, 9], 2, 7))
async def test_a_kill_during_a_write_leaves_a_complete_file(
    folder: Path, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    writing = run_writer_until_killed(folder, "anywhere", lines)
    (generation,) = generations(folder)
    assert int(generation) >= int(writing) - 1
    found = await EmbeddingFiles(folder).find(["git"], "m", {f"git__{n}": generation for n in range(1500)})
    assert len(found) == 1500
    assert ignore_reasons(caplog) == []


@pytest.mark.slow
@pytest.mark.req("S-10")
@pytest.mark.parametrize("point", ["fsync", "replace"])
async def test_a_kill_before_the_rename_leaves_the_old_file(folder: Path, point: str) -> None:
    assert run_writer_until_killed(folder, point, 1) == "here"
    assert generations(folder) == {"1"}
    (leftover,) = files_in(folder, "*.new-*")
    cache = EmbeddingFiles(folder)
    await cache.keep(["git"], "m", make_vectors({"git__0": "2"}))
    assert leftover.exists(), "its writer may be at work"
    long_ago = time.time() - LEFTOVER_SECONDS - 1
    os.utime(leftover, (long_ago, long_ago))
    await cache.keep(["git"], "m", make_vectors({"git__0": "3"}))
    assert files_in(folder) == [path_of(folder, ["git"])]


@pytest.mark.req("S-10")
async def test_files_that_vanish_during_a_search_are_skipped(folder: Path) -> None:
    cache = EmbeddingFiles(folder)
    await cache.keep(["git", "x"], "m", make_vectors({"git__log": "d1"}))
    for vanished in ("x.json.new-1", "embeddings-1.json"):
        (folder / vanished).symlink_to("gone")
    await cache.keep(["git"], "m", make_vectors({"git__diff": "d2"}))
    assert (await cache.find(["git"], "m", TOOLS)).keys() == {"git__log", "git__diff"}


# Any sequence of operations, compared with a dictionary

LISTS = st.sampled_from([("a",), ("b",), ("a", "b"), ("a", "b", "c")])
MODELS = st.sampled_from(["m", "n"])
WANTED = st.dictionaries(st.sampled_from(["a__x", "a__y", "b__x", "c__x"]), st.sampled_from(["1", "2"]), min_size=1)


class Cache(RuleBasedStateMachine):
    """Intact entries must be found, damaged ones may be found, others must not."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.cache = EmbeddingFiles(self.folder)
        self.models: dict[tuple[str, ...], str] = {}
        self.sure: dict[tuple[str, ...], dict[str, str]] = {}
        self.perhaps: dict[tuple[str, ...], dict[str, str]] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(servers=LISTS, model=MODELS, wanted=WANTED)
    def keep(self, servers: tuple[str, ...], model: str, wanted: dict[str, str]) -> None:
        asyncio.run(self.cache.keep(servers, model, make_vectors(wanted, model)))
        if self.models.get(servers) != model:
            self.sure[servers], self.perhaps[servers] = {}, {}
        self.models[servers] = model
        self.sure[servers] |= {i: d for i, d in wanted.items() if i.partition("__")[0] in servers}
        self.perhaps[servers] = {i: d for i, d in self.perhaps[servers].items() if i not in wanted}

    @rule(servers=LISTS, model=MODELS, wanted=WANTED)
    def find(self, servers: tuple[str, ...], model: str, wanted: dict[str, str]) -> None:
        found = asyncio.run(self.cache.find(servers, model, wanted))
        assert right(found, wanted, model)
        sure, perhaps = (
            {i for s, tools in kept.items() if self.models[s] == model for i, d in tools.items() if wanted.get(i) == d}
            for kept in (self.sure, self.perhaps)
        )
        assert sure <= found.keys() <= sure | perhaps

    @rule(servers=LISTS, at=st.floats(0, 1, exclude_max=True), change=st.integers(0, 255))
    def harm(self, servers: tuple[str, ...], at: float, change: int) -> None:
        """Flips bits of one byte, or cuts the file off there."""
        file = path_of(self.folder, servers)
        content = bytearray(file.read_bytes()) if file.exists() else bytearray()
        if content:
            place = int(at * len(content))
            content[place] ^= change
            file.write_bytes(content if change else content[:place])
            self.perhaps[servers] |= self.sure[servers]
            self.sure[servers] = {}

    @rule(servers=LISTS)
    def remove(self, servers: tuple[str, ...]) -> None:
        path_of(self.folder, servers).unlink(missing_ok=True)
        self.models.pop(servers, None)
        self.sure.pop(servers, None)
        self.perhaps.pop(servers, None)

    @rule()
    def restart(self) -> None:
        self.cache = EmbeddingFiles(self.folder)


TestCache = pytest.mark.req("S-10", "X-03")(Cache.TestCase)
Cache.TestCase.settings = settings(max_examples=scale_examples(40), stateful_step_count=15, deadline=None)


@pytest.mark.req("S-10")
async def test_files_beyond_the_maximum_are_removed(tmp_path: Path) -> None:
    cache = EmbeddingFiles(tmp_path)
    vector = np.array([1.0, 0.0], dtype=np.float32)
    for number in range(30):
        await cache.keep([f"server{number}"], "m", {f"server{number}__tool": ("digest", vector)})
    assert sum(1 for _ in tmp_path.iterdir()) == 21  # noqa: ASYNC240
    assert await cache.has(["server29"])
    assert not await cache.has(["server0"])
