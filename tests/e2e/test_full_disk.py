"""A disk that fills up, in memory and small: writes are refused with the free space, everything else goes on, and
writes succeed again when there is space."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.serving import serve
from toolscript.app.access import local_token
from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.services.documents.points import DOCUMENTS
from toolscript.settings import load_settings

ROOT = Path(__file__).parents[2]
DISK_MEGABYTES = 400
# Enough for SQLite, and less than the index needs to write; then nothing at all. Messages have whole megabytes: half of
# one is for the kilobytes that are written between a message and the comparison.
LITTLE_SPACE, NO_SPACE = 17 * 2**19, 0
MOUNT = 'mount -t tmpfs tmpfs "$0"'
IN_NAMESPACE = f'mount -t tmpfs -o size={DISK_MEGABYTES}m tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
DRIVER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.e2e.test_full_disk import use_disk

asyncio.run(use_disk(Path(sys.argv[1])))
"""


def fill_disk(file: Path, leave: int) -> None:
    with file.open("ab", buffering=0) as ballast:
        while (free := shutil.disk_usage(file.parent).free) > leave:
            try:
                ballast.write(bytes(min(2**20, free - leave)))
            except OSError:
                return


async def observe(app: App, client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    """What requests are answered, and whether a sync can write."""
    text = {"text": f"The lease of {name} ends in May. " * 50}
    answers = {
        "put": await client.put(f"/documents/{name}", json=text),
        "search": await client.get("/search?q=commits&threshold=0"),
        "list": await client.get("/tools"),
        "documents": await client.post("/search", json={"query": "lease"}),
        "stored": await client.get("/documents/first"),
        "ready": await client.get("/ready"),
    }
    found = {key: [answer.status_code, answer.json()] for key, answer in answers.items()}
    return found | {"free": shutil.disk_usage(app.settings.data).free}


async def use_disk(folder: Path) -> None:
    """Prints what is observed before, while and after the disk is full."""
    settings = load_settings(data_dir=folder / "data", search_model="hashed-64")
    seen: dict[str, Any] = {}
    async with open_app(settings) as app:
        await app.catalogue.sync.run([Item("git", "log", "Shows commits.")])
        headers = {"Authorization": f"Bearer {local_token(app.access.local_key, 'acme')}"}
        async with serve(app) as url, httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            seen["before"] = await observe(app, client, "first")
            fill_disk(folder / "ballast", LITTLE_SPACE)
            seen["little"] = await observe(app, client, "second")
            fill_disk(folder / "ballast", NO_SPACE)
            seen["none"] = await observe(app, client, "third")
            (folder / "ballast").unlink()
            seen["after"] = await observe(app, client, "third")
            fill_disk(folder / "ballast", NO_SPACE)
    seen["closed on a full disk"] = True
    (folder / "ballast").unlink()
    async with open_app(settings) as app:
        seen["kept"] = [d.id for d in await app.stores.documents.list_documents("acme", limit=10)]
        seen["indexed"] = await app.index.count(DOCUMENTS)
        seen["repaired"] = await app.texts.ingest_documents.repair()
    sys.stdout.write(json.dumps(seen))


@pytest.mark.extended
@pytest.mark.req("X-07")
def test_on_a_full_disk_writes_are_refused_with_the_free_space_and_all_else_goes_on(tmp_path: Path) -> None:
    command = ["unshare", "-rm", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*command, MOUNT, tmp_path], check=False).returncode:
        pytest.skip("a disk of a few megabytes needs Linux and the right to mount one: unshare -rm")
    done = subprocess.run(
        [*command, IN_NAMESPACE, "sh", tmp_path, sys.executable, DRIVER, ROOT],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    seen = json.loads(done.stdout)
    assert {key: answer[0] for key, answer in seen["before"].items() if key != "free"} == {
        "put": 201,
        "search": 200,
        "list": 200,
        "documents": 200,
        "stored": 200,
        "ready": 200,
    }
    for moment in ("little", "none"):
        assert {key: answer[0] for key, answer in seen[moment].items() if key != "free"} == {
            "put": 503,
            "search": 200,
            "list": 200,
            "documents": 200,
            "stored": 200,
            "ready": 200,
        }, seen[moment]
        error = seen[moment]["put"][1]["error"]
        assert error["code"] == "UNAVAILABLE"
        assert error["message"].startswith(f"disk full: {seen[moment]['free'] // 2**20} MB free, 1")
        assert error["message"].endswith(" MB needed")
        assert str(tmp_path) not in json.dumps(error)
    assert seen["after"]["put"][0] in {200, 201}
    assert set(seen["kept"]) >= {"first", "third"}
