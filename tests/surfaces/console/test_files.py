"""The files of the console over HTTP: who gets them, with which headers, and that the wheel has them."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import pytest

from tests.servers.real import MODULES
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.console.static_files import FOLDER, load_files
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

ROOT = Path(__file__).parents[3]
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "Accept-Encoding": "gzip, br"}
MAX_MODULE_LINES = 300


def connect(settings: Settings, host: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_http_app(ServedApp(settings, ready=False)))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}")


@pytest.fixture
def keyed(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path, api_key="a-key-of-the-tests")


@pytest.mark.req("W-01")
async def test_a_browser_gets_the_page_without_a_key_and_before_the_application_is_open(keyed: Settings) -> None:
    async with connect(keyed) as client:
        page = await client.get("/", headers=BROWSER)
        script = await client.get("/console/app.js", headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (script.status_code, script.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert page.headers["content-encoding"] == script.headers["content-encoding"] == "gzip"
    assert script.text == (FOLDER / "app.js").read_text(encoding="utf-8")


async def test_json_clients_get_json_where_browsers_get_the_page(small: Settings) -> None:
    async with connect(small) as client:
        for accept in ("*/*", "application/json", ""):
            answer = await client.get("/", headers={"Accept": accept})
            assert answer.headers["content-type"] == "application/json"
            assert "error" in answer.json()  # it is still opening


@pytest.mark.req("W-02")
async def test_the_policy_allows_no_inline_script_and_no_other_origin(small: Settings) -> None:
    async with connect(small) as client:
        answer = await client.get("/", headers=BROWSER)
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


async def test_a_file_is_sent_again_only_when_it_has_changed(small: Settings) -> None:
    async with connect(small) as client:
        first = await client.get("/console/style/base.css", headers=BROWSER)
        second = await client.get("/console/style/base.css", headers=BROWSER | {"If-None-Match": first.headers["etag"]})
        plain = await client.get("/console/style/base.css", headers={"Accept-Encoding": "gzip;q=0"})
        head = await client.head("/", headers=BROWSER)
    assert (second.status_code, second.content) == (304, b"")
    assert first.headers["cache-control"] == "no-cache"
    assert "content-encoding" not in plain.headers
    assert plain.headers["etag"] != first.headers["etag"]
    assert (head.status_code, head.content) == (200, b"")


async def test_the_guard_refuses_strange_names_and_other_files_stay_hidden(small: Settings) -> None:
    async with connect(small, "evil.example") as client:
        assert (await client.get("/", headers=BROWSER)).status_code == 403
    async with connect(small) as client:
        for path in ("/console/nothing.js", "/console/%2e%2e/static_files.py", "/console/"):
            assert (await client.get(path, headers=BROWSER)).status_code == 404
        assert (await client.get("/", headers=BROWSER | {"Origin": "http://evil.example"})).status_code == 403
        assert (await client.post("/", headers=BROWSER)).status_code in {401, 404, 405, 503}


@pytest.mark.req("W-01")
def test_the_wheel_has_every_file() -> None:
    builders = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed: run `make test`")
    included = {Path(each.distribution_path) for each in builders.WheelBuilder(str(ROOT)).recurse_included_files()}
    folder = Path("toolscript/surfaces/console/static")
    assert {folder / name for name in load_files()} <= included


def test_every_file_below_the_folder_is_served_and_no_module_is_long() -> None:
    on_disk = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert on_disk == set(load_files())
    own = {name: file for name, file in load_files().items() if name.endswith(".js") and "vendor/" not in name}
    assert not [name for name, file in own.items() if file.content.count(b"\n") > MAX_MODULE_LINES]


def test_vendored_files_are_those_of_the_packages() -> None:
    if not (MODULES / "preact").exists():
        pytest.skip(f"no packages in {MODULES}: run `make test`")
    packages = {
        "vendor/preact.js": MODULES / "preact" / "dist" / "preact.mjs",
        "vendor/hooks.js": MODULES / "preact" / "hooks" / "dist" / "hooks.mjs",
        "vendor/htm.js": MODULES / "htm" / "dist" / "htm.mjs",
    }
    for name, path in packages.items():
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "sourceMappingURL" not in line]
        expected = "\n".join(lines).replace('from"preact"', 'from"./preact.js"')
        assert load_files()[name].content.decode().strip() == expected.strip(), name


def test_compressed_files_are_the_same_for_every_process() -> None:
    file = load_files()["app.js"]
    assert gzip.decompress(file.compressed) == file.content
    assert file.compressed[4:8] == bytes(4)  # no time of compression
