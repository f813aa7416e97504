"""A gateway that is killed in the middle of an ingest job, twice: the next one continues, and the end is the same as
without the kills. Searches are answered all the while."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from tests.servers.preloaded import toolscript_command
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.gateway import send_to_gateway

pytestmark = [pytest.mark.req("F-01", "F-02", "X-07"), pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")]

# More by hand: TOOLSCRIPT_TEST_FILES=500 takes some minutes.
FILES = int(os.environ.get("TOOLSCRIPT_TEST_FILES", "30"))
NOTES = 12
LIMIT_SECONDS = 120.0 + 2 * FILES
MAX_BYTES = 30_000
KINDS = ("py", "pyi", "md", "txt", "rst", "json", "toml", "js", "html", "css", "c", "h", "so", "pyc", "exe")


def write_files(folder: Path) -> None:
    """Real files of many kinds, of the programs that run the tests, and notes with a word of their own each."""
    folder.mkdir()
    for n in range(NOTES):
        paragraphs = "\n\n".join(f"Paragraph {p} of note {n} speaks of amber{n} and of the sea." for p in range(40))
        (folder / f"note{n:02}.md").write_text(f"# Note {n}\n\n{paragraphs}\n")
    for number, path in enumerate(find_real_files()):
        shutil.copyfile(path, folder / f"{number:03}-{path.name}")
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Tides", "ada@example.com", "bo@example.com"
    message.set_content("Spring tides come with the new moon.")
    (folder / "tides.eml").write_bytes(bytes(message))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnonsense")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")


def find_real_files() -> list[Path]:
    """Equally many of each kind, the first ones in the folder of the programs: all of it would take seconds to read."""
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    each = -(-FILES // len(KINDS))
    for folder, folders, names in os.walk(sys.prefix):
        folders.sort()
        for path in (Path(folder, name) for name in sorted(names)):
            of_kind = found.get(path.suffix[1:])
            if of_kind is not None and len(of_kind) < each and path.is_file() and 0 < path.stat().st_size < MAX_BYTES:
                of_kind.append(path)
        if all(len(of_kind) == each for of_kind in found.values()):
            break
    return [path for of_kind in found.values() for path in of_kind]


@contextmanager
def run_gateway(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TOOLSCRIPT_SEARCH_MODEL": "hashed-64", "TOOLSCRIPT_DATA_DIR": str(data)}
    command = [*toolscript_command(), "gateway", "start", "--port", "0"]
    output = data.with_suffix(".log")
    with (
        output.open("wb") as opened,
        subprocess.Popen(command, env=environment, cwd=data.parent, stdout=opened, stderr=opened) as process,
    ):

        def is_ready() -> bool:
            return process.poll() is not None or bool(request(data, "/health"))

        try:
            wait_for(is_ready)
            assert process.poll() is None, output.read_text()
            yield process
        finally:
            process.kill()


def kill(gateway: subprocess.Popen[bytes], data: Path) -> None:
    """Kills the gateway itself: what the test has started may only stand for it, and end before it does."""
    os.kill(json.loads((data / "gateway.json").read_text())["pid"], signal.SIGKILL)
    gateway.wait()


def request(data: Path, path: str, **how: Any) -> Any:
    return send_to_gateway(load_settings(variables={}, data_dir=data), path, tenant="default", **how)


def wait_for(condition: Any) -> Any:
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except Exception:  # noqa: BLE001 - the gateway is starting
            pass
        time.sleep(0.02)
    raise TimeoutError


def read_documents(data: Path) -> list[tuple[str, str]]:
    listed = request(data, "/documents", limit=1000)["documents"]
    return sorted((each["id"], json.dumps(each["metadata"], sort_keys=True)) for each in listed)


def search(data: Path, word: str) -> list[str]:
    answer = request(data, "/search", body={"query": word, "search_type": "keyword"})
    return [hit["doc_id"] for hit in answer["hits"]]


def list_files(data: Path, job: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    listed = request(data, f"/api/v1/jobs/{job['id']}/files", limit=1000)["files"]
    return sorted((each["name"], each["state"], each["problem"]) for each in listed)


def finish(data: Path, job: dict[str, Any]) -> dict[str, Any]:
    def find_done() -> dict[str, Any] | None:
        found: dict[str, Any] = request(data, f"/api/v1/jobs/{job['id']}")
        search(data, "amber1")  # all the while
        return found if found["state"] == "done" else None

    done: dict[str, Any] = wait_for(find_done)
    return done


@pytest.mark.extended
def test_a_job_goes_on_after_kills_and_ends_as_if_undisturbed(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    write_files(notes)
    data, undisturbed = tmp_path / "data", tmp_path / "undisturbed"
    job: dict[str, Any] = {}
    for enough in (5, 20):
        with run_gateway(data) as gateway:
            job = job or request(data, "/api/v1/ingest", body={"paths": [str(notes)]})
            wait_for(lambda: request(data, f"/api/v1/jobs/{job['id']}")["files"].get("done", 0) >= enough)  # noqa: B023
            kill(gateway, data)
    with run_gateway(data):
        done = finish(data, job)
        files, documents = list_files(data, job), read_documents(data)
        found = {n: search(data, f"amber{n}") for n in range(NOTES)}
        again = finish(data, request(data, "/api/v1/ingest", body={"paths": [str(notes)]}))
        assert (again["unchanged"], again["added"], again["changed"]) == (len(documents), 0, 0)
    assert found == {n: [f"note{n:02}.md"] for n in range(NOTES)}
    states = Counter(state for _, state, _ in files)
    assert done["files"]["total"] + sum(done["skipped"].values()) == len([*notes.iterdir()]), (
        "nothing is left uncounted"
    )
    assert states["done"] + states["failed"] == done["files"]["total"]
    assert all(problem for _, state, problem in files if state == "failed")
    with run_gateway(undisturbed):
        whole = finish(undisturbed, request(undisturbed, "/api/v1/ingest", body={"paths": [str(notes)]}))
        assert list_files(undisturbed, whole) == files
        assert read_documents(undisturbed) == documents
        assert {n: search(undisturbed, f"amber{n}") for n in range(NOTES)} == found
