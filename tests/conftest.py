"""What every test may ask for: real adapters, started here and stopped here.

The application and its adapters are imported by the fixtures that need them: `make test-fast` needs neither.
"""

from __future__ import annotations

import functools
import gc
import io
import logging
import os
import ssl
import sys
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import pytest
from hypothesis import HealthCheck, settings

# On few and busy cores numpy's own threads wait for each other; the variable must be set before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Some tests import ONNX Runtime themselves, which then must send nothing either.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from tests.async_tests import pytest_fixture_setup, pytest_pyfunc_call  # noqa: F401, hooks for pytest
from tests.fixtures.databases import close_memory_databases
from tests.fixtures.limits import extend_limits
from tests.servers.mongo import run_mongo
from tests.servers.postgres import connect, empty_database, run_postgres
from tests.servers.preloaded import VARIABLE as PRELOADED
from tests.servers.preloaded import run_preloaded
from tests.servers.processes import ServerFailed
from tests.servers.real import require_programs
from tests.time_limit import pytest_runtest_teardown, pytest_xdist_make_scheduler  # noqa: F401, hooks for pytest

if TYPE_CHECKING:
    from toolscript.adapters.onnx.embedder import OnnxEmbedder
    from toolscript.app.app import App
    from toolscript.settings import Settings

REPOSITORY = Path(__file__).parents[1]
# The same examples in every run, so that no run fails by chance; `make test-all` looks for new ones.
SLOW = [HealthCheck.too_slow]  # is measured in wall time
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=SLOW)
settings.register_profile("thorough", deadline=None, suppress_health_check=SLOW)
settings.load_profile("repeatable")
SLOW_FIXTURES = {"postgres_server", "mongo_server", "minilm", "tool_model", "ranx"}
POSTGRES, MONGO = "TOOLSCRIPT_TEST_POSTGRES_URL", "TOOLSCRIPT_TEST_MONGO_URL"


# An index on disk takes 80 MB, and modules keep theirs until the run ends.
MEMORY_FOLDER, MIN_FREE_BYTES = Path("/dev/shm"), 8_000_000_000


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Puts the folders of tests in memory where there is room: 15 to 20 times a test stores and indexes wait for the
    disk, 2 to 6 ms each time. HTTP clients share the certificates, which take 50 ms to read."""
    ssl.create_default_context = functools.cache(ssl.create_default_context)  # type: ignore[assignment]
    if config.option.basetemp or "PYTEST_DEBUG_TEMPROOT" in os.environ or not os.access(MEMORY_FOLDER, os.W_OK):
        return
    found = os.statvfs(MEMORY_FOLDER)
    free = min(found.f_bavail * found.f_frsize, psutil.virtual_memory().available)
    if free > MIN_FREE_BYTES and not found.f_flag & os.ST_NOEXEC:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY_FOLDER)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Starts the servers once for all processes of a run with `-n`, and ends the run when one cannot start.

    Workers inherit the environment: a server whose URL is in it is used, not started. Without `-n` a server starts
    when the first test needs it.
    """
    if "not slow" in session.config.getoption("markexpr"):
        sys.addaudithook(_refuse_processes)
        return
    if os.environ.get("PYTEST_XDIST_WORKER") or not session.config.getoption("numprocesses", None):
        return
    try:
        require_programs()
        servers = ExitStack()
        session.config.add_cleanup(servers.close)
        programs = {POSTGRES: run_postgres, MONGO: run_mongo, PRELOADED: run_preloaded}
        missing = [variable for variable in programs if variable not in os.environ]
        with ThreadPoolExecutor() as pool:
            urls = list(pool.map(lambda variable: servers.enter_context(programs[variable]()), missing))
        for variable, url in zip(missing, urls, strict=True):
            os.environ[variable] = url
            servers.callback(os.environ.pop, variable)
    except ServerFailed as error:
        pytest.exit(str(error), returncode=3)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


def _refuse_processes(event: str, _: object) -> None:
    """Keeps `make test-fast` fast."""
    if event == "subprocess.Popen" and "PYTEST_CURRENT_TEST" in os.environ:
        raise RuntimeError("this test starts a process: mark it with pytest.mark.slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Keeps the garbage collector away from the modules and the tests themselves: it took an eighth of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@contextmanager
def _use_server(
    variable: str, run: Callable[[], AbstractContextManager[str]], session: pytest.Session
) -> Iterator[str]:
    """Yields the URL in the variable, or else that of a server that runs until the block ends.

    A server that cannot start ends the run: it is one message, not an error for each of hundreds of tests.
    """
    if url := os.environ.get(variable):
        yield url
        return
    with ExitStack() as stack:
        try:
            url = stack.enter_context(run())
        except ServerFailed as error:
            session.shouldfail = message = str(error)
            raise pytest.fail.Exception(message, pytrace=False) from None
        yield url


@pytest.fixture(autouse=True)
def _memory_databases() -> Iterator[None]:
    """Python 3.13 warns of connections that are never closed."""
    yield
    close_memory_databases()


@pytest.fixture(scope="session", autouse=True)
def _generous_deadlines() -> Iterator[None]:
    """For fixtures of modules, too."""
    with pytest.MonkeyPatch.context() as patch:
        extend_limits(patch)
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests do not see the settings, the home folder or the network of the user."""
    for variable in [v for v in os.environ if v.startswith("TOOLSCRIPT_") and not v.startswith("TOOLSCRIPT_TEST_")]:
        monkeypatch.delenv(variable)
    for variable in ("MONGODB_URI", "QDRANT_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # hides what is written only at the end of a process
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOOLSCRIPT_HUB_URL", "http://127.0.0.1:9")


@pytest.fixture(scope="session")
async def minilm() -> AsyncIterator[OnnxEmbedder]:
    """The packaged model for documents and knowledge."""
    from toolscript.adapters.onnx.model_folders import PACKAGED

    async with _open_packaged(PACKAGED) as embedder:
        yield embedder


@pytest.fixture(scope="session")
async def tool_model() -> AsyncIterator[OnnxEmbedder]:
    """The packaged model for tools, which is the default."""
    from toolscript.adapters.onnx.model_folders import PACKAGED_FOR_TOOLS

    async with _open_packaged(PACKAGED_FOR_TOOLS) as embedder:
        yield embedder


@asynccontextmanager
async def _open_packaged(name: str) -> AsyncIterator[OnnxEmbedder]:
    from toolscript.adapters.onnx.embedder import OnnxEmbedder
    from toolscript.adapters.onnx.model_folders import find_locally

    folder = find_locally(name, Path("nowhere"))
    assert folder is not None
    embedder = OnnxEmbedder(folder, device="cpu")
    yield embedder
    await embedder.close()


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a PostgreSQL database of this process, on a server that lives as long as the tests."""
    with _use_server(POSTGRES, run_postgres, request.session) as url:
        name = f"test_{uuid.uuid4().hex}"
        with connect(url) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
        with connect(url) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """The URL of an empty PostgreSQL database."""
    empty_database(postgres_server)
    return postgres_server


@pytest.fixture(scope="session")
def mongo_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URI of a server that speaks MongoDB's protocol and lives as long as the tests."""
    with _use_server(MONGO, run_mongo, request.session) as uri:
        yield uri


@pytest.fixture
def mongo(mongo_server: str) -> Iterator[str]:
    """The URI of an empty database on that server."""
    from pymongo import MongoClient

    name = f"test_{uuid.uuid4().hex}"
    yield f"{mongo_server.rstrip('/')}/{name}"
    with MongoClient[dict[str, object]](mongo_server, timeoutMS=60_000) as client:
        client.drop_database(name)


@pytest.fixture
def _swept() -> Iterator[None]:
    """Collects the sockets that MongoDB's driver leaves open when it is closed while it connects: their warnings must
    not fail another test."""
    gc.freeze()  # what was there before takes 0.4 s to look through
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Log lines, as they are written to standard error."""
    from toolscript.surfaces.logs import configure_logging

    written = io.StringIO()
    touched = [logging.getLogger(name) for name in ("toolscript", "opentelemetry")]
    before = [(each.handlers, each.propagate, each.level) for each in touched]
    monkeypatch.setattr("sys.stderr", written)
    configure_logging("info")
    yield written
    for each, (handlers, propagate, level) in zip(touched, before, strict=True):
        each.handlers, each.propagate = handlers, propagate
        each.setLevel(level)


@pytest.fixture
def small(tmp_path: Path) -> Settings:
    """Settings for an application without a model: everything real but the embedder, which is deterministic."""
    from toolscript.settings import load_settings

    return load_settings(data_dir=tmp_path / "data", search_model="hashed-64")


@pytest.fixture
async def app(small: Settings) -> AsyncIterator[App]:
    from toolscript.app.app import open_app

    async with open_app(small) as opened:
        yield opened


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The evaluation data that lies beside the checkout (or where TOOLSCRIPT_TEST_DATA says)."""
    folder = Path(os.environ.get("TOOLSCRIPT_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no evaluation data at {folder}: set TOOLSCRIPT_TEST_DATA")
    return folder
