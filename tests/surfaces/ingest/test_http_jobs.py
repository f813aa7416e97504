"""Ingest jobs over HTTP: uploads, paths, progress, cancelling, and who may do what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from tests.fixtures.limits import set_limits
from toolscript.app.app import App, local_token, open_app
from toolscript.domain.access import Principal, Scope
from toolscript.domain.files.jobs import Job, JobFile, JobTarget
from toolscript.services.documents.request import DocumentQuery, SearchType
from toolscript.services.knowledge.search import KnowledgeQuery
from toolscript.settings import load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("F-01")

SECRET = "a-secret-of-the-tests-that-is-long-enough"
LINES = [{"id": "row", "text": "A row about beetles."}, {"id": "other", "text": "Another row."}]


@asynccontextmanager
async def serve(folder: Path, **given: Any) -> AsyncIterator[tuple[App, httpx.AsyncClient]]:
    settings = load_settings(
        variables={}, data_dir=folder, index="memory:", search_model="hashed-64", jwt_secret=SECRET, **given
    )
    async with open_app(settings, serving=True) as app:
        transport = httpx.ASGITransport(create_http_app(ServedApp(settings, app)))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3780") as http:
            yield app, http


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[App, httpx.AsyncClient]]:
    async with serve(tmp_path / "data", ingest_folders=str(tmp_path / "shared")) as opened:
        yield opened


def of_tenant(tenant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {jwt.encode({'tenant_id': tenant, 'exp': 2**31}, SECRET)}"}


ACME = of_tenant("acme")


async def finish(http: httpx.AsyncClient, job: dict[str, Any], headers: dict[str, str] = ACME) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while job["state"] == "running":
            await asyncio.sleep(0.01)
            job = (await http.get(f"/api/v1/jobs/{job['id']}", headers=headers)).json()
    return job


async def list_files(http: httpx.AsyncClient, job: dict[str, Any], **query: Any) -> list[dict[str, Any]]:
    answer = await http.get(f"/api/v1/jobs/{job['id']}/files", headers=ACME, params=query)
    assert answer.status_code == 200, answer.text
    files: list[dict[str, Any]] = answer.json()["files"]
    return files


async def find(app: App, tenant: str, query: str) -> list[str]:
    wanted = DocumentQuery(query=query, search_type=SearchType.KEYWORD)
    page = await app.texts.document_search.search(Principal(tenant), wanted)
    return [hit.doc_id for hit in page.hits]


async def test_uploaded_files_become_documents_of_the_tenant(served: tuple[App, httpx.AsyncClient]) -> None:
    app, http = served
    files = [
        ("file", ("notes/bees.md", b"# Bees\n\nA hive needs shade.")),
        ("file", ("rows.jsonl", "\n".join(map(json.dumps, LINES)).encode())),
        ("file", ("broken.pdf", b"nonsense")),
    ]
    started = await http.post(
        "/api/v1/ingest", headers=ACME, files=files, data={"options": '{"metadata": {"team": "a"}}'}
    )
    assert started.status_code == 202, started.text
    job = await finish(http, started.json())
    assert (job["state"], job["added"], job["files"]) == ("done", 3, {"total": 3, "done": 2, "failed": 1})
    assert await find(app, "acme", "hive") == ["notes/bees.md"]
    assert await find(app, "other", "hive") == []
    assert (await app.texts.ingest_documents.get("acme", "row")).metadata["team"] == "a"
    (failed,) = await list_files(http, job, state="failed")
    assert failed["name"] == "broken.pdf"
    assert failed["problem"]
    again = await finish(http, (await http.post("/api/v1/ingest", headers=ACME, files=files[:2])).json())
    assert (again["changed"], again["unchanged"]) == (3, 0), "without the metadata of the first time"
    once_more = [("file", ("rows.jsonl", json.dumps(LINES[0]).encode()))]
    less = await finish(http, (await http.post("/api/v1/ingest", headers=ACME, files=once_more)).json())
    assert (less["unchanged"], less["removed"]) == (1, 1), "what is no longer in its file is removed"


async def test_uploaded_files_become_knowledge_with_the_scope_admin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, keys_max_age=0.0)  # a new key is known at once
    async with serve(tmp_path, api_key="the-key-of-the-operator") as (app, http):
        _, secret = await app.access.keys.create("searcher", [Scope.SEARCH])
        upload: dict[str, Any] = {"files": {"file": ("bees.md", b"# Bees\n\n## Hives\n\nA hive needs shade.")}}
        path = "/api/v1/ingest?as=knowledge"
        assert (await http.post(path, **upload)).status_code == 401
        answer = await http.post(path, headers={"X-API-Key": secret}, **upload)
        assert answer.status_code == 403, answer.text
        operator = {"X-API-Key": "the-key-of-the-operator"}
        started = await http.post(path, headers=operator, data={"options": '{"authors": ["Ada"]}'}, **upload)
        job = await finish(http, started.json(), operator)
        assert (job["as"], job["added"], job["passages"]) == ("knowledge", 1, 1)
        assert len((await app.texts.knowledge_search.search(KnowledgeQuery("hive", 5))).hits) == 1
        (source,) = await app.stores.knowledge.list_sources()
        assert (source.title, source.authors) == ("Bees", ("Ada",))
        listed = (await http.get("/api/v1/jobs?as=knowledge", headers=operator)).json()
        assert [each["id"] for each in listed["jobs"]] == [job["id"]]


async def test_an_uploaded_file_without_a_heading_is_called_by_its_name(
    served: tuple[App, httpx.AsyncClient],
) -> None:
    app, http = served
    names = ["notes/tea_table.txt", f"{'é' * 300}.txt", "..txt"]
    files = [("file", (name, f"Tea number {i} is brewed.".encode())) for i, name in enumerate(names)]
    started = await http.post("/api/v1/ingest?as=knowledge", files=files)
    job = await finish(http, started.json(), {})
    assert job["files"] == {"total": 3, "done": 3}
    titles = sorted(source.title for source in await app.stores.knowledge.list_sources())
    assert "tea table" in titles
    assert not [title for title in titles if title.startswith("toolscript")]


async def test_the_sources_of_knowledge_are_listed(served: tuple[App, httpx.AsyncClient]) -> None:
    _, http = served
    assert (await http.get("/api/v1/knowledge/sources")).json() == {"sources": []}
    files = {"file": ("bees.md", b"# Bees\n\nA hive needs shade.")}
    await finish(http, (await http.post("/api/v1/ingest?as=knowledge", files=files)).json(), {})
    (source,) = (await http.get("/api/v1/knowledge/sources")).json()["sources"]
    assert (source["title"], source["path"], source["chunks"], source["status"]) == ("Bees", "bees.md", 1, "ready")


async def test_only_paths_below_the_allowed_folders_are_read(
    served: tuple[App, httpx.AsyncClient], tmp_path: Path
) -> None:
    app, http = served
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "bees.md").write_text("A hive needs shade.")
    (tmp_path / "private.md").write_text("A secret.")
    (shared / "link.md").symlink_to(tmp_path / "private.md")
    refused = [str(tmp_path / "private.md"), str(shared / "link.md"), str(shared / ".." / "private.md"), "bees.md", ""]
    for path in refused:
        answer = await http.post("/api/v1/ingest", headers=ACME, json={"paths": [path]})
        assert answer.status_code == 403, path
        assert "TOOLSCRIPT_INGEST_FOLDERS" in answer.json()["error"]["message"]
    started = await http.post("/api/v1/ingest", headers=ACME, json={"paths": [str(shared)]})
    job = await finish(http, started.json())
    assert (job["added"], job["skipped"]) == (1, {"link out of the folder, or special file": 1})
    owner = {"Authorization": f"Bearer {local_token(app.access.local_key, 'acme')}"}
    own = await http.post("/api/v1/ingest", headers=owner, json={"paths": [str(tmp_path / "private.md")]})
    assert (await finish(http, own.json()))["added"] == 1


async def test_a_path_that_has_become_a_link_out_of_the_folder_is_not_read(
    served: tuple[App, httpx.AsyncClient], tmp_path: Path
) -> None:
    app, http = served
    (tmp_path / "private.md").write_text("A secret.")
    swapped = tmp_path / "shared" / "a.md"
    swapped.parent.mkdir()
    swapped.symlink_to(tmp_path / "private.md")
    await app.stores.jobs.create(Job("documents-1", JobTarget.DOCUMENTS, "acme", {}, 0.0))
    await app.stores.jobs.add_files("documents-1", [JobFile("documents-1", 0, "a.md", str(swapped))])
    app.texts.job_runner.wake()
    job = await finish(http, (await http.get("/api/v1/jobs/documents-1", headers=ACME)).json())
    assert (job["added"], job["files"]) == (0, {"total": 1, "failed": 1})


async def test_jobs_of_other_tenants_do_not_exist(served: tuple[App, httpx.AsyncClient]) -> None:
    _, http = served
    upload = {"file": ("a.md", b"A note.")}
    job = (await http.post("/api/v1/ingest", headers=ACME, files=upload)).json()
    path = f"/api/v1/jobs/{job['id']}"
    other = of_tenant("other")
    requests = [("GET", path), ("GET", f"{path}/files"), ("POST", f"{path}/cancel"), ("POST", f"{path}/resume")]
    for method, each in requests:
        assert (await http.request(method, each, headers=other)).status_code == 404
        assert (await http.request(method, each)).status_code == 401
    added = await http.post("/api/v1/ingest", headers=other, files=upload, data={"job": job["id"]})
    assert added.status_code == 404
    assert (await http.get("/api/v1/jobs", headers=other)).json() == {"jobs": []}
    for unknown in ("documents-x", "tools-1", "x"):
        assert (await http.get(f"/api/v1/jobs/{unknown}", headers=ACME)).status_code == 404


async def test_files_are_added_to_a_job_until_it_is_cancelled(served: tuple[App, httpx.AsyncClient]) -> None:
    app, http = served
    job = (await http.post("/api/v1/ingest", headers=ACME, files={"file": ("a.md", b"One.")})).json()
    more = await http.post("/api/v1/ingest", headers=ACME, files={"file": ("b.md", b"Two.")}, data={"job": job["id"]})
    job = await finish(http, more.json())
    assert (job["added"], job["files"]["total"]) == (2, 2)
    cancelled = (await http.post(f"/api/v1/jobs/{job['id']}/cancel", headers=ACME)).json()
    assert cancelled["state"] == "cancelled"
    refused = await http.post(
        "/api/v1/ingest", headers=ACME, files={"file": ("c.md", b"Three.")}, data={"job": job["id"]}
    )
    assert refused.status_code == 409
    resumed = (await http.post(f"/api/v1/jobs/{job['id']}/resume", headers=ACME)).json()
    assert resumed["state"] == "done"
    assert await find(app, "acme", "three") == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"json": {}}, "paths"),
        ({"json": {"paths": []}}, "paths"),
        ({"json": {"paths": ["/x"], "colour": "red"}}, "colour"),
        ({"files": {"other": ("a.md", b"x")}}, "other"),
        ({"files": {"file": ("a.md", b"x")}, "data": {"options": "nonsense"}}, "options"),
        ({"files": {"file": ("a.md", b"x")}, "data": {"options": '{"colour": 1}'}}, "options.colour"),
        ({"files": {"file": ("a\x1b.md", b"x")}}, "file"),
        ({"files": {"job": ("a.md", b"x")}}, "file"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, None),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}, None),
    ],
)
async def test_bad_requests_name_the_wrong_field(
    served: tuple[App, httpx.AsyncClient], given: dict[str, Any], field: str | None
) -> None:
    _, http = served
    headers = {**ACME, **given.pop("headers", {})}
    answer = await http.post("/api/v1/ingest", headers=headers, **given)
    assert answer.status_code in {400, 422}, answer.text
    if field:
        assert answer.json()["error"]["details"]["field"] == field
    assert (await http.get("/api/v1/jobs", headers=ACME)).json() == {"jobs": []}


async def test_two_tenants_that_ingest_at_once_get_what_each_gets_alone(tmp_path: Path) -> None:
    def upload(tenant: str) -> list[tuple[str, tuple[str, bytes]]]:
        texts = (f"# {tenant} {n}\n\nA hive of {tenant} needs shade {n}, and water." for n in range(10))
        return [("file", (f"n{n}.md", text.encode())) for n, text in enumerate(texts)]

    async def search(http: httpx.AsyncClient, tenant: str) -> list[Any]:
        answers = []
        for kind in ("keyword", "semantic", "hybrid"):
            body = {"query": "a hive needs water", "search_type": kind, "top_k": 50}
            answer = (await http.post("/search", headers=of_tenant(tenant), json=body)).json()
            answers.append({name: answer[name] for name in ("hits", "total", "total_relation")})
        return answers

    async def ingest(http: httpx.AsyncClient, tenant: str) -> None:
        headers = of_tenant(tenant)
        started = await http.post("/api/v1/ingest", headers=headers, files=upload(tenant))
        assert (await finish(http, started.json(), headers))["added"] == 10

    alone = {}
    for tenant in ("acme", "other"):
        async with serve(tmp_path / tenant) as (_, http):
            await ingest(http, tenant)
            alone[tenant] = json.dumps(await search(http, tenant))
    async with serve(tmp_path / "both") as (_, http):
        await asyncio.gather(ingest(http, "acme"), ingest(http, "other"))
        assert {tenant: json.dumps(await search(http, tenant)) for tenant in alone} == alone


@pytest.mark.req("X-12")
@pytest.mark.parametrize("name", ["..", "notes/..", ".", "/"])
async def test_an_upload_that_is_named_like_a_folder_is_refused(
    served: tuple[App, httpx.AsyncClient], name: str
) -> None:
    _, http = served
    answer = await http.post("/api/v1/ingest", headers=ACME, files={"file": (name, b"text")})
    assert (answer.status_code, answer.json()["error"]["details"]) == (422, {"field": "file"})


@pytest.mark.req("X-12")
async def test_a_path_with_a_nul_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path / "data", ingest_folders=str(tmp_path)) as (app, http):
        owner = {"Authorization": f"Bearer {local_token(app.access.local_key, 'acme')}"}
        for headers in (ACME, owner):
            body = {"paths": [f"{tmp_path}/a\0b"]}
            answer = await http.post("/api/v1/ingest", headers=headers, json=body)
            assert (answer.status_code, answer.json()["error"]["details"]) == (422, {"field": "paths"}), answer.text
