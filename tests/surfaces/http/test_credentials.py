"""Credentials of document routes: every route with every kind of bad credentials."""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from tests.fixtures.serving import replace_parts
from tests.servers.published_keys import SigningKey, encode_part, new_key
from toolscript.app.app import App, local_token, open_app
from toolscript.domain.access import Principal, Scope
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid, RateLimited, Unauthorized
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.callers import identify_principal
from toolscript.surfaces.console.static_files import CONSOLE_PATHS
from toolscript.surfaces.http.app import ROUTES, create_http_app
from toolscript.surfaces.http.dependencies import get_scope
from toolscript.surfaces.http.errors import error_response
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("D-05")

SECRET = "a-secret-of-the-tests-that-is-long-enough"
OTHER_SECRET = "another-secret-of-the-tests-that-is-long"
API_KEY = "the-key-of-the-operator-of-this-gateway"
ISSUER, AUDIENCE = "https://issuer.example", "toolscript"
HIDDEN = "xylophone"
REPORT = Document("report", f"a {HIDDEN} that nobody but its owner may see", "A report")
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/search"): {"query": HIDDEN, "search_type": "keyword"},
    ("PUT", "/documents/{doc_id}"): {"text": "overwritten"},
    ("POST", "/documents"): {"documents": [{"id": "report", "text": "overwritten"}]},
}
Sent = list[tuple[str, str]]
Routes = list[tuple[str, str]]


def claims(**fields: Any) -> dict[str, Any]:
    response = {"tenant_id": "acme", "exp": int(time.time()) + 600, "iss": ISSUER, "aud": AUDIENCE, **fields}
    return {name: value for name, value in response.items() if value is not None}


def bearer(token: str) -> Sent:
    return [("Authorization", f"Bearer {token}")]


def by_secret(secret: str = SECRET, algorithm: str = "HS256", **fields: Any) -> Sent:
    return bearer(jwt.encode(claims(**fields), secret, algorithm=algorithm))


def make_unsigned_token() -> str:
    return f"{encode_part({'alg': 'none', 'typ': 'JWT'})}.{encode_part(claims())}."


def encode_headers(headers: Sent) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]


STRANGER = new_key("ES256", "published")
PUBLISHED = new_key("ES256", "published")
NOW = time.time()

BAD: dict[str, Callable[[], Sent]] = {
    "nothing": list,
    "an empty header": lambda: [("Authorization", "")],
    "an empty token": lambda: [("Authorization", "Bearer ")],
    "another scheme": lambda: [("Authorization", "Basic YWNtZTphY21l")],
    "a token without a scheme": lambda: [("Authorization", by_secret()[0][1].removeprefix("Bearer "))],
    "two tokens": lambda: by_secret() + by_secret(tenant_id="other"),
    "two headers, one of them empty": lambda: [("Authorization", ""), *by_secret()],
    "letters that no header may have": lambda: bearer("\xe9\xff"),
    "a token that is not signed": lambda: bearer(make_unsigned_token()),
    "an expired token": lambda: by_secret(exp=int(NOW) - 3600),
    "another secret": lambda: by_secret(OTHER_SECRET),
    "the public key as secret": lambda: bearer(key_confusion(PUBLISHED)),
    "no tenant": lambda: by_secret(tenant_id=None),
    "another issuer": lambda: by_secret(iss="https://evil.example"),
    "another audience": lambda: by_secret(aud="another-service"),
    "a local token of another gateway": lambda: bearer(local_token(OTHER_SECRET, "acme")),
    "a secret's token that says it is local": lambda: by_secret(iss="toolscript-local"),
    "the key of the operator": lambda: bearer(API_KEY),
    "the key of the operator in its own header": lambda: [("X-API-Key", API_KEY)],
    "a bypass that is not switched on": lambda: [("X-Debug-Bypass-Auth", "1")],
    "a bypass beside a bad token": lambda: [("X-Debug-Bypass-Auth", "1"), *by_secret(OTHER_SECRET)],
    "a tenant that is only claimed": lambda: [("X-Tenant-Id", "acme"), ("X-Tenant", "acme")],
    "a token in a cookie": lambda: [("Cookie", f"token={by_secret()[0][1]}; Authorization={by_secret()[0][1]}")],
    "a token in another header": lambda: [("Proxy-Authorization", by_secret()[0][1])],
}


def key_confusion(key: SigningKey) -> str:
    parts = f"{encode_part({'alg': 'HS256', 'typ': 'JWT', 'kid': key.kid})}.{encode_part(claims())}"
    return f"{parts}.{encode_part(hmac.digest(key.pem(), parts.encode(), 'sha256'))}"


@pytest.fixture(scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """An application that requires a key, trusts a secret and a published key, and has a document of acme."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "keys.json").write_text(json.dumps({"keys": [PUBLISHED.public_jwk()]}))
    settings = load_settings(
        variables={},
        data_dir=folder / "data",
        search_model="hashed-64",
        api_key=API_KEY,
        jwt_secret=SECRET,
        jwt_jwks=str(folder / "keys.json"),
        jwt_issuer=ISSUER,
        jwt_audience=AUDIENCE,
    )
    async with open_app(settings) as app:
        await app.texts.ingest_documents.put("acme", [REPORT])
        yield app


@asynccontextmanager
async def open_client(app: App, settings: Settings | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, with other settings if given."""
    app = replace_parts(app, settings=settings) if settings else app
    transport = httpx.ASGITransport(create_http_app(ServedApp(app.settings, app)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture(scope="module")
async def routes(guarded: App) -> Routes:
    """Every route of the application, in OpenAPI or not."""
    http = create_http_app(ServedApp(guarded.settings, guarded))
    described = {(m.upper(), path) for path, response in http.openapi()["paths"].items() for m in response}
    others = {(m, r.path) for r in http.routes for m in getattr(r, "methods", None) or () if hasattr(r, "path")}
    return sorted((m, re.sub(r"\{(\w+):\w+\}", r"{\1}", path)) for m, path in described | others)


def routes_with(scope: Scope | None, **settings: Any) -> Routes:
    """Every route that needs this scope."""
    loaded = load_settings(variables={}, **settings)
    return sorted((m, r.path_format) for r in ROUTES if get_scope(r, loaded) is scope for m in r.methods or ())


@pytest.fixture(scope="module")
async def document_routes() -> Routes:
    return routes_with(Scope.DOCUMENTS)


def path_of(template: str) -> str:
    return re.sub(r"\{\w+\}", "report", template)


async def everything(app: App) -> dict[str, list[Document]]:
    return {
        tenant: await app.stores.documents.get_documents(tenant) for tenant in await app.stores.documents.list_tenants()
    }


@pytest.mark.req("D-11")
async def test_the_document_routes_are_as_specified(document_routes: Routes) -> None:
    agreed = {(method, path) for method, path in BODIES} | {
        ("GET", "/documents"),
        ("GET", "/documents/{doc_id}"),
        ("DELETE", "/documents/{doc_id}"),
    }
    jobs = {("GET", ""), ("GET", "/{job_id}"), ("GET", "/{job_id}/files")}
    jobs |= {("POST", "/{job_id}/cancel"), ("POST", "/{job_id}/resume")}
    agreed |= {(method, f"/api/v1/jobs{path}") for method, path in jobs} | {("POST", "/api/v1/ingest")}
    assert set(document_routes) == agreed


@pytest.mark.req("X-04", "D-06", "K-03")
def test_the_routes_without_credentials_are_the_probes_discovery_redirects_and_public_knowledge() -> None:
    probes = {("GET", "/health"), ("GET", "/ready"), ("GET", "/search/health")}
    metadata = "/.well-known/oauth-protected-resource"
    discovery = {("GET", path) for path in (f"{metadata}/{{path}}", metadata)}
    discovery.add(("GET", "/callback"))  # an authorization server sends a browser there, which has no key
    discovery.add(("POST", "/api/v1/sign-in"))  # the code of `toolscript open` is the credential
    assert {*routes_with(None)} == probes | discovery
    assert {*routes_with(None, knowledge_public=True)} == {*probes, *discovery, ("POST", "/search_knowledge")}


@pytest.mark.req("D-04", "D-11")
@pytest.mark.parametrize("kind", BAD)
async def test_every_document_route_refuses_every_kind_of_bad_credential(
    guarded: App, document_routes: Routes, kind: str
) -> None:
    before = await everything(guarded)
    async with open_client(guarded) as http:
        for method, path in document_routes:
            for body in (json.dumps(BODIES.get((method, path), {})).encode(), b"{ no json"):
                response = await http.request(method, path_of(path), content=body, headers=encode_headers(BAD[kind]()))
                assert response.status_code == 401, (method, path, response.text)
                assert response.headers["WWW-Authenticate"].startswith("Bearer")
                error = response.json()["error"]
                assert set(error) == {"code", "message", "details"}
                assert error["code"] == "UNAUTHORIZED"
                for secret in (HIDDEN, SECRET, OTHER_SECRET, API_KEY, guarded.access.local_key):
                    assert secret not in response.text
    assert await everything(guarded) == before


@pytest.mark.req("D-04")
async def test_a_token_in_the_query_string_is_ignored(guarded: App, document_routes: Routes) -> None:
    token = by_secret()[0][1].removeprefix("Bearer ")
    async with open_client(guarded) as http:
        for method, path in document_routes:
            query = {"access_token": token, "token": token, "tenant": "acme", "tenant_id": "acme", "caller": "acme"}
            response = await http.request(method, path_of(path), params=query, json=BODIES.get((method, path), {}))
            assert response.status_code == 401


@pytest.mark.req("X-04", "D-06")
async def test_every_other_route_requires_a_key_or_a_token(guarded: App, routes: Routes) -> None:
    public, console = routes_with(None), {re.sub(r"\{(\w+):\w+\}", r"{\1}", path) for path in CONSOLE_PATHS[1:]}
    async with open_client(guarded) as http:
        for method, path in routes:
            if (method, path) in public or path in console:
                assert (await http.request(method, path)).status_code not in {401, 403}
            elif path != "/mcp":  # without a key it has public knowledge: tests/surfaces/mcp/test_keys.py
                response = await http.request(method, path_of(path), json={})
                assert (method, path, response.status_code) == (method, path, 401)


GOOD: dict[str, Callable[[App], Sent]] = {
    "a token of the secret": lambda _: by_secret(),
    "a token of the published key": lambda _: bearer(PUBLISHED.sign(claims())),
    "a token of this machine": lambda app: bearer(local_token(app.access.local_key, "acme")),
    "a scheme in small letters": lambda _: [("authorization", by_secret()[0][1].replace("Bearer", "bearer"))],
    "a token beside the operator's key": lambda _: [*by_secret(), ("X-API-Key", API_KEY)],
    "a token beside a bypass that is not switched on": lambda _: [*by_secret(), ("X-Debug-Bypass-Auth", "1")],
}


@pytest.mark.req("D-04", "D-09")
@pytest.mark.parametrize("kind", GOOD)
async def test_every_document_route_accepts_good_credentials(guarded: App, document_routes: Routes, kind: str) -> None:
    order = ["POST", "PUT", "GET", "DELETE"]
    async with open_client(guarded) as http:
        for method, path in sorted(document_routes, key=lambda route: order.index(route[0])):
            response = await http.request(
                method, path_of(path), json=BODIES.get((method, path)), headers=GOOD[kind](guarded)
            )
            expected = {200, 201, 204} if path.startswith(("/documents", "/search")) else {200, 404, 422}
            assert response.status_code in expected, (method, path, response.text)
    await guarded.texts.ingest_documents.put("acme", [REPORT])


@pytest.mark.req("D-04")
async def test_the_tenant_comes_from_the_token_only(guarded: App) -> None:
    others = [("X-Tenant-Id", "acme"), ("X-Tenant", "acme"), *by_secret(tenant_id="other")]
    async with open_client(guarded) as http:
        assert (await http.get("/documents/report", headers=others, params={"tenant_id": "acme"})).status_code == 422
        assert (await http.get("/documents/report", headers=others)).status_code == 404
        assert (await http.delete("/documents/report", headers=others)).status_code == 404
        found = await http.post("/search", headers=others, json=BODIES["POST", "/search"])
        assert found.json()["hits"] == []
        assert (await http.get("/documents/report", headers=by_secret())).status_code == 200


async def test_the_operators_key_sent_as_a_token_gets_an_error_that_names_the_right_header(guarded: App) -> None:
    async with open_client(guarded) as http:
        response = await http.get("/documents", headers=bearer(API_KEY))
        assert "X-API-Key: KEY" in response.json()["error"]["message"]


@pytest.mark.req("D-10")
async def test_metrics_require_the_operators_key(guarded: App) -> None:
    async with open_client(guarded) as http:
        assert (await http.get("/metrics", headers=by_secret())).status_code == 401
        assert (await http.get("/metrics", headers={"X-API-Key": API_KEY})).status_code != 401


# --- the bypass ---


def trial(app: App, **fields: Any) -> Settings:
    return replace(app.settings, **{"debug_bypass_auth": True, "tenant": "acme", **fields})


async def test_the_bypass_gives_the_tenant_of_the_settings(guarded: App) -> None:
    async with open_client(guarded, trial(guarded)) as http:
        assert (await http.get("/documents/report", headers={"X-Debug-Bypass-Auth": "1"})).status_code == 200
    async with open_client(guarded, trial(guarded, tenant="other")) as http:
        assert (await http.get("/documents/report", headers={"X-Debug-Bypass-Auth": "1"})).status_code == 404


@pytest.mark.parametrize("value", ["", "0", "true", "yes", "on", "01", "1.0", "11", "1,1", "１"])
async def test_the_bypass_header_must_be_1(guarded: App, value: str) -> None:
    app = replace_parts(guarded, settings=trial(guarded))
    with pytest.raises(Unauthorized):
        await identify_principal(app, {"X-Debug-Bypass-Auth": value})


@pytest.mark.parametrize("fields", [{"debug_bypass_auth": False}, {"environment": "production"}])
async def test_the_bypass_needs_both_settings(guarded: App, fields: dict[str, Any]) -> None:
    async with open_client(guarded, trial(guarded, **fields)) as http:
        assert (await http.get("/documents/report", headers={"X-Debug-Bypass-Auth": "1"})).status_code == 401


async def test_a_token_overrides_the_bypass(guarded: App) -> None:
    app = replace_parts(guarded, settings=trial(guarded))
    bypass = {"X-Debug-Bypass-Auth": "1"}
    assert await identify_principal(app, bypass) == Principal("acme")
    assert await identify_principal(app, {**bypass, **dict(by_secret(tenant_id="other"))}) == Principal("other")
    with pytest.raises(Unauthorized):
        await identify_principal(app, {**bypass, **dict(by_secret(OTHER_SECRET))})


async def test_production_refuses_to_start_with_the_bypass_and_writes_nothing(tmp_path: Path) -> None:
    given = {"TOOLSCRIPT_ENVIRONMENT": "production", "TOOLSCRIPT_DEBUG_BYPASS_AUTH": "true"}
    settings = load_settings(variables=given, data_dir=tmp_path / "data", search_model="hashed-64")
    with pytest.raises(Invalid, match="TOOLSCRIPT_DEBUG_BYPASS_AUTH"):
        async with open_app(settings):
            pytest.fail("it was opened")
    assert not (tmp_path / "data").exists()


# --- the format of errors ---


@pytest.mark.req("D-11", "D-12")
@pytest.mark.parametrize(
    ("wait", "header"), [(0.2, "1"), (1, "1"), (1.001, "2"), (60, "60"), (None, None), ("x", None)]
)
def test_a_rate_limit_error_has_a_retry_after_header(wait: Any, header: str | None) -> None:
    response = error_response(RateLimited("slowly", details={} if wait is None else {"retry_after_seconds": wait}))
    assert response.status_code == 429
    assert response.headers.get("Retry-After") == header
    assert json.loads(bytes(response.body))["error"]["code"] == "RATE_LIMITED"


@pytest.mark.req("D-12")
async def test_the_tokens_claim_selects_the_plan(tmp_path: Path) -> None:
    plans = tmp_path / "plans.toml"
    plans.write_text("[plans.slow]\nrequests_per_minute = 2\n")
    settings = load_settings(
        variables={}, data_dir=tmp_path / "data", search_model="hashed-64", jwt_secret=SECRET, plans=plans
    )
    async with open_app(settings) as app, open_client(app) as http:
        slow, other = by_secret(plan="slow"), by_secret(plan="slow", tenant_id="other")
        answers = [await http.post("/search", headers=slow, json={"query": "x"}) for _ in range(3)]
        assert [a.status_code for a in answers] == [200, 200, 429]
        assert int(answers[2].headers["Retry-After"]) in range(1, 31)
        assert answers[2].json()["error"]["code"] == "RATE_LIMITED"
        assert (await http.post("/search", headers=other, json={"query": "x"})).status_code == 200
        assert (await http.post("/search", headers=by_secret(OTHER_SECRET), json={"query": "x"})).status_code == 401
