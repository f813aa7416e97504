"""Processes that are killed at random moments while they write documents, knowledge, a catalogue or an index: the data
folder opens afterwards, and nothing is lost that was acknowledged.

Each kind of work runs a few rounds, or as many as TOOLSCRIPT_TEST_KILL_ROUNDS says. TOOLSCRIPT_TEST_KILL_SEED repeats
the moments of an earlier run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from tests.fixtures.document_ingest import Ingest, sentences
from tests.fixtures.limits import extend_limits
from toolscript.adapters.files.reader import FileBooks
from toolscript.adapters.sql.documents import ABANDONED_AFTER_SECONDS, SqlDocuments
from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.domain.documents import Document
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.services.knowledge.ingest import IngestKnowledge
from toolscript.services.knowledge.points import CHUNKS
from toolscript.services.knowledge.search import KnowledgeQuery
from toolscript.settings import Settings, load_settings

ROUNDS = int(os.environ.get("TOOLSCRIPT_TEST_KILL_ROUNDS", "2"))
ROOT = Path(__file__).parents[2]
# Most are killed at a random moment after they have opened the folder, the others before.
OPENING_SHARE, OPENING_SECONDS, WRITING_SECONDS = 0.2, 0.3, 0.8
DOCUMENT_COUNT, TOOL_COUNT, BOOK_COUNT = 30, 60, 2

DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.e2e.test_killed import run_rounds

run_rounds(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
"""

# What a writer gets: settings, the last version that was acknowledged, and a function that acknowledges one. It repeats
# the last one when it has opened the folder.
Write = Callable[[Settings, int, Callable[[int], None]], Coroutine[Any, Any, None]]
Check = Callable[[Settings, int], Coroutine[Any, Any, None]]


def make_settings(folder: Path) -> Settings:
    return load_settings(data_dir=folder / "data", search_model="hashed-64", quarantine="open")


# --- documents ---


def make_document(number: int, version: int) -> Document:
    """Lengths go up and down with the version, and each document says which it is."""
    paragraphs = range(number % 3 + version % 3)
    return Document(f"d{number:02d}", f"{sentences(*paragraphs)} Version {version}.", metadata={"version": version})


async def write_documents(settings: Settings, version: int, acknowledge: Callable[[int], None]) -> None:
    async with open_app(settings) as app:
        acknowledge(version)
        while True:
            version += 1
            await app.texts.ingest_documents.put("acme", [make_document(n, version) for n in range(DOCUMENT_COUNT)])
            acknowledge(version)


async def check_documents(settings: Settings, acknowledged: int) -> None:
    async with open_app(settings) as app:
        stored = await app.stores.documents.get_documents("acme")
        for document in stored:
            assert document == make_document(int(document.id[1:]), document.metadata["version"])
        versions = [document.metadata["version"] for document in stored]
        assert not acknowledged or (len(versions) == DOCUMENT_COUNT and min(versions) >= acknowledged), versions
        await repair_documents(app)


async def repair_documents(app: App) -> None:
    """Does what a gateway does when it starts, long after the writer was killed."""
    store = cast("SqlDocuments", app.stores.documents)
    store._clock = lambda: time.time() + 2 * ABANDONED_AFTER_SECONDS
    await app.texts.ingest_documents.repair()
    assert app.model.embedder
    await Ingest(store, app.index, app.model.embedder).assert_whole()


# --- knowledge ---


def build_ingest(app: App) -> IngestKnowledge:
    """Reads files in this process: workers would take most of the time."""
    return IngestKnowledge(
        app.stores.knowledge_writer, app.index, app.model.embedder, FileBooks(max_in_process_bytes=10**6), None
    )


def write_book(file: Path, version: int) -> None:
    sections = (
        f"## Section {n}\n\n{sentences(n)}\n\nThis is version {version} of it.\n" for n in range(3 + version % 4)
    )
    draft = file.with_suffix(".new")
    draft.write_text("\n".join(["# A book", *sections]), encoding="utf-8")
    draft.replace(file)


async def write_knowledge(settings: Settings, version: int, acknowledge: Callable[[int], None]) -> None:
    books = [settings.data.parent / f"book-{number}.md" for number in range(BOOK_COUNT)]
    async with open_app(settings) as app:
        ingest = build_ingest(app)
        acknowledge(version)
        while True:
            version += 1
            for book in books:
                write_book(book, version)
                await ingest.ingest(book)
            acknowledge(version)


async def check_knowledge(settings: Settings, acknowledged: int) -> None:
    async with open_app(settings) as app:
        sources = await app.stores.knowledge.list_sources()
        assert not acknowledged or len(sources) == BOOK_COUNT
        ingest = build_ingest(app)
        for source in sources:
            chunks, _ = await app.stores.knowledge.get_contents(source.id)
            versions = {int(v) for chunk in chunks for v in re.findall(r"This is version (\d+)", chunk.content)}
            assert not acknowledged or (versions and min(versions) >= acknowledged), (versions, acknowledged)
            assert source.path
            await ingest.ingest(Path(source.path))  # running it again completes it
            chunks, _ = await app.stores.knowledge.get_contents(source.id)
            versions = {int(v) for chunk in chunks for v in re.findall(r"This is version (\d+)", chunk.content)}
            assert len(versions) == 1
        if sources:
            found = await app.texts.knowledge_search.search(KnowledgeQuery("this is version of a book", limit=20))
            places = {place.source_id for hit in found.hits for place in (hit, *hit.copies)}
            assert places == {source.id for source in sources}
            assert not found.report.degraded


# --- sync ---


def make_items(version: int) -> list[Item]:
    return [Item("git", f"tool-{n}", f"Does thing {n}, version {version}.") for n in range(version % 3, TOOL_COUNT)]


async def write_catalogue(settings: Settings, version: int, acknowledge: Callable[[int], None]) -> None:
    async with open_app(settings) as app:
        acknowledge(version)
        while True:
            version += 1
            await app.catalogue.sync.run(make_items(version))
            acknowledge(version)


async def check_catalogue(settings: Settings, acknowledged: int) -> None:
    async with open_app(settings) as app:
        stored = [each.item for each in await app.stores.items.get_items()]
        versions = [int(item.description.rpartition("version ")[2].rstrip(".")) for item in stored]
        assert not acknowledged or (versions and min(versions) >= acknowledged), (versions, acknowledged)
        await app.catalogue.sync.configure(["git"])  # as a gateway does when it starts
        assert await app.index.count(TOOLS) == len(stored)
        last = max(versions, default=0) + 1
        await app.catalogue.sync.run(make_items(last))
        assert [each.item for each in await app.stores.items.get_items()] == sorted(
            make_items(last), key=lambda i: i.id
        )
        assert await app.index.count(TOOLS) == len(make_items(last))
        assert (await app.tools.search.search("tool-7")).hits[0].id == "git__tool-7"


# --- rebuild ---


async def fill_everything(settings: Settings) -> None:
    async with open_app(settings) as app:
        await app.catalogue.sync.run(make_items(1))
        await app.texts.ingest_documents.put("acme", [make_document(n, 1) for n in range(DOCUMENT_COUNT)])
        book = settings.data.parent / "book.md"
        write_book(book, 1)
        await build_ingest(app).ingest(book)


async def rebuild(settings: Settings) -> None:
    """What `toolscript index rebuild` does."""
    async with open_app(settings, fresh_index=True) as app:
        await app.catalogue.sync.index_catalogue()
        await app.texts.ingest_documents.index_all()
        await build_ingest(app).index_all()


async def write_index(settings: Settings, version: int, acknowledge: Callable[[int], None]) -> None:
    acknowledge(version)
    while True:
        await rebuild(settings)
        version += 1
        acknowledge(version)


async def check_index(settings: Settings, _: int) -> None:
    async with open_app(settings) as app:
        assert len(await app.stores.items.get_items()) == len(make_items(1))
        assert len(await app.stores.documents.get_documents("acme")) == DOCUMENT_COUNT
        assert len(await app.stores.knowledge.list_sources()) == 1
        await app.catalogue.sync.configure(["git"])  # as a gateway does when it starts
        await repair_documents(app)
        assert (await app.tools.search.search("tool-7")).hits[0].id == "git__tool-7"
    await rebuild(settings)
    async with open_app(settings) as app:
        chunks = sum(count for count, _ in (await app.stores.knowledge.count_contents()).values())
        assert not await build_ingest(app).index_all()
        assert await app.index.count(CHUNKS) == chunks > 0


async def prepare_nothing(_: Settings) -> None:
    """For writers that begin with an empty folder."""


KINDS: dict[str, tuple[Callable[[Settings], Coroutine[Any, Any, None]], Write, Check]] = {
    "documents": (prepare_nothing, write_documents, check_documents),
    "knowledge": (prepare_nothing, write_knowledge, check_knowledge),
    "sync": (prepare_nothing, write_catalogue, check_catalogue),
    "rebuild": (fill_everything, write_index, check_index),
}


# --- the driver, a process of its own ---


def run_rounds(folder: Path, seed: int, rounds: int) -> None:
    """Runs and kills writers of all kinds, and checks their folders, in forks of this process, which opens nothing
    itself: its imports take seconds, a fork milliseconds. Prints what happened in each round, by kind."""
    extend_limits(pytest.MonkeyPatch())
    moments, seen = random.Random(seed), dict[str, list[Any]]()
    for kind, (prepare, write, check) in KINDS.items():
        settings, acknowledged, seen[kind] = make_settings(folder / kind), 0, []
        settings.data.parent.mkdir()
        if not _succeeds(prepare(settings)):
            sys.exit(f"{kind} could not be prepared")
        for _ in range(rounds):
            acknowledged, after = _write_until_killed(settings, write, acknowledged, moments)
            seen[kind].append({"killed after": after, "acknowledged": acknowledged})
            if not _succeeds(check(settings, acknowledged)):
                sys.exit(f"{kind} failed: {seen[kind]}")
    sys.stdout.write(json.dumps(seen))


def _write_until_killed(settings: Settings, write: Write, version: int, moments: random.Random) -> tuple[int, str]:
    """The last version that the writer has acknowledged, and when it was killed."""
    reading, writing = os.pipe()
    is_opening, moment = moments.random() < OPENING_SHARE, moments.random()
    seconds = moment * (OPENING_SECONDS if is_opening else WRITING_SECONDS)
    pid = _fork(write(settings, version, lambda done: _write_line(writing, done)))
    os.close(writing)
    with os.fdopen(reading) as lines:
        opened = "" if is_opening else lines.readline()
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        last = [opened, *lines.read().split()][-1]
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        sys.exit("the writer has ended by itself")
    return int(last or version), f"{seconds:.3f} s, {'opening' if is_opening else 'writing'}"


def _write_line(descriptor: int, number: int) -> None:
    os.write(descriptor, f"{number}\n".encode())


def _succeeds(work: Coroutine[Any, Any, None]) -> bool:
    return os.waitpid(_fork(work), 0)[1] == 0


def _fork(work: Coroutine[Any, Any, None]) -> int:
    """The id of a new process that does the work and exits, with 0 unless it fails."""
    pid = os.fork()
    if pid:
        work.close()  # it runs in the fork
        return pid
    code = 1
    try:
        asyncio.run(work)
        code = 0
    except BaseException:  # noqa: BLE001  (it must not return into the code of its parent)
        traceback.print_exc()
    with suppress(BaseException):
        sys.stderr.flush()
    os._exit(code)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What happened to the writers of each kind."""
    seed = int(os.environ.get("TOOLSCRIPT_TEST_KILL_SEED", random.randrange(10**6)))
    command = [sys.executable, "-c", DRIVER, str(ROOT), str(tmp_path_factory.mktemp("killed")), str(seed), str(ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"TOOLSCRIPT_TEST_KILL_SEED={seed}: {done.stderr}"
    print(f"seed {seed}: {done.stdout}")  # noqa: T201
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.extended
@pytest.mark.req("X-07", "D-09", "H-14")
@pytest.mark.parametrize("kind", KINDS)
def test_a_process_killed_at_random_moments_loses_nothing_that_it_acknowledged(
    rounds: dict[str, list[Any]], kind: str
) -> None:
    assert len(rounds[kind]) == ROUNDS
