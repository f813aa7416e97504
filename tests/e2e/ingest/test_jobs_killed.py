"""A gateway that is killed in the middle of an ingest job, twice: the next one continues, and the end is the same as
without the kills. Searches are answered all the while."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.preloaded import toolscript_command
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.gateway import send_to_gateway

pytestmark = [pytest.mark.req("F-01", "X-07"), pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")]

FILES = 60
LIMIT_SECONDS = 120.0


def write_files(folder: Path) -> None:
    folder.mkdir()
    for n in range(FILES):
        paragraphs = "\n\n".join(f"Paragraph {p} of note {n} speaks of amber{n} and of the sea." for p in range(40))
        (folder / f"note{n:02}.md").write_text(f"# Note {n}\n\n{paragraphs}\n")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnonsense")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")


@contextmanager
def run_gateway(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TOOLSCRIPT_SEARCH_MODEL": "hashed-64", "TOOLSCRIPT_DATA_DIR": str(data)}
    command = [*toolscript_command(), "gateway", "start", "--port", "0"]
    with subprocess.Popen(
        command, env=environment, cwd=data.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(lambda: request(data, "/health"))
            yield process
        finally:
            process.kill()


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


def test_a_job_goes_on_after_kills_and_ends_as_if_undisturbed(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    write_files(notes)
    data, undisturbed = tmp_path / "data", tmp_path / "undisturbed"
    with run_gateway(data) as gateway:
        job = request(data, "/api/v1/ingest", body={"paths": [str(notes)]})
        wait_for(lambda: request(data, f"/api/v1/jobs/{job['id']}")["files"].get("done", 0) >= 5)
        assert search(data, "amber0") == ["note00.md"], "each file is found as soon as it is done"
        gateway.send_signal(signal.SIGKILL)
        gateway.wait()
    with run_gateway(data) as gateway:
        wait_for(lambda: request(data, f"/api/v1/jobs/{job['id']}")["files"].get("done", 0) >= 10)
        gateway.send_signal(signal.SIGKILL)
        gateway.wait()
    with run_gateway(data):
        done = wait_for(lambda: (j := request(data, f"/api/v1/jobs/{job['id']}"))["state"] == "done" and j)
        assert (done["files"], done["skipped"]) == (
            {"total": FILES + 1, "done": FILES, "failed": 1},
            {"no reader for .png files": 1},
        )
        killed = read_documents(data)
        found = {n: search(data, f"amber{n}") for n in range(FILES)}
        again = request(data, "/api/v1/ingest", body={"paths": [str(notes)]})
        again = wait_for(lambda: (j := request(data, f"/api/v1/jobs/{again['id']}"))["state"] == "done" and j)
        assert (again["unchanged"], again["added"], again["changed"]) == (FILES, 0, 0)
    with run_gateway(undisturbed):
        job = request(undisturbed, "/api/v1/ingest", body={"paths": [str(notes)]})
        wait_for(lambda: request(undisturbed, f"/api/v1/jobs/{job['id']}")["state"] == "done")
        assert read_documents(undisturbed) == killed
        assert {n: search(undisturbed, f"amber{n}") for n in range(FILES)} == found
