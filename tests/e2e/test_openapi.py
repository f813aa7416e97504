"""Every route against the OpenAPI document: generated requests get the described responses, and every error has the
envelope.

Each route gets a few requests, or as many as TOOLSCRIPT_TEST_API_EXAMPLES says.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import jwt
import pytest
import schemathesis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from toolscript.app.app import App, open_app
from toolscript.configuration.snippets import ConfigurationPlace
from toolscript.domain.catalog import Suggestion
from toolscript.domain.documents import Document
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.settings import Settings, load_settings
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.openapi import KEY, TOKEN
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("D-01", "D-09", "D-11")

Operation = APIOperation[Any, Any, Any, Any]

SECRET = "a secret that is long enough for anybody"
SETTINGS = load_settings(variables={}, search_model="hashed-64", index="memory:", store="sqlite://", jwt_secret=SECRET)
SCHEMA = schemathesis.openapi.from_dict(create_http_app(ServedApp(SETTINGS)).openapi())
each_operation = pytest.mark.parametrize(
    "operation", [each for methods in SCHEMA.values() for each in methods.values()], ids=lambda each: each.label
)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
ENVELOPE = "#/components/schemas/ErrorEnvelope"
EXAMPLES = os.environ.get("TOOLSCRIPT_TEST_API_EXAMPLES")
MANY = settings(
    max_examples=int(EXAMPLES or 2),
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate) if EXAMPLES else (Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True, slots=True)
class Gateway:
    """An application with tools, skills, a suggestion and documents, whose event loop runs in a thread."""

    portal: BlockingPortal
    client: httpx.AsyncClient
    token: str

    def answer(self, case: schemathesis.Case[Any], headers: dict[str, str]) -> httpx.Response:
        given = case.as_transport_kwargs(base_url="http://127.0.0.1")
        given["headers"].pop("Authorization", None)
        given["headers"].update(headers)
        del given["cookies"]  # none is described
        if "files" in given:
            given = encode_form(given)
        elif "data" in given:
            given["content"] = given.pop("data")
        return self.portal.call(lambda: self.client.request(**given))


def encode_form(given: dict[str, Any]) -> dict[str, Any]:
    """The request with its form as bytes: the client takes only files that can be read."""
    parts = given.pop("files") or []
    listed = list(parts.items()) if isinstance(parts, dict) else parts
    files = [
        (name, (str(value[0] or "a.md"), str(value[1]).encode()) if isinstance(value, tuple) else str(value).encode())
        for name, value in listed
    ]
    given.pop("data", None)
    form = httpx.Request(given["method"], given["url"], files=files)
    content_type = {"Content-Type": form.headers.get("content-type", "multipart/form-data")}
    return given | {"content": form.read(), "headers": {**given["headers"], **content_type}}


async def fill(app: App) -> None:
    await app.catalogue.sync.run(load_demo_items())
    await app.stores.skills.add_suggestion(Suggestion("Time Travel", "Why not", None, keywords=("why",)))
    await app.texts.ingest_documents.put("acme", [Document("contracts/lease-7", "The notice period is three months.")])


@contextmanager
def run_gateway(chosen: Settings) -> Iterator[Gateway]:
    token = jwt.encode({"tenant_id": "acme", "exp": time.time() + 3600}, SECRET, algorithm="HS256")
    with (
        TemporaryDirectory() as folder,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_app(chosen, serving=True)) as app,
    ):
        portal.call(fill, app)
        served = ServedApp(chosen, app)
        served.place = ConfigurationPlace(None, Path(folder), Path(folder), {})
        transport = httpx.ASGITransport(create_http_app(served))
        with portal.wrap_async_context_manager(httpx.AsyncClient(transport=transport)) as client:
            yield Gateway(portal, client, token)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with run_gateway(SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def gateway_with_key() -> Iterator[Gateway]:
    with run_gateway(replace(SETTINGS, api_key="a key")) as running:
        yield running


def validate(case: schemathesis.Case[Any], answer: httpx.Response) -> None:
    # As the generated `timeout` wants; or the check of the arguments took too long, and there is no server to call.
    is_late = answer.status_code == 504 or (answer.status_code == 503 and "is not configured" in answer.text)
    case.validate_response(answer, checks=[c for c in CHECKS if c is not not_a_server_error or not is_late])
    check_envelope(answer)


def check_envelope(answer: httpx.Response) -> None:
    if answer.status_code < 400:
        return
    response = answer.json()
    assert response.keys() == {"error"}
    assert response["error"].keys() == {"code", "message", "details"}
    assert response["error"]["message"]
    assert answer.headers["x-request-id"]


def assert_unauthorized(answer: httpx.Response) -> None:
    if answer.status_code == 422:  # the path is read before credentials are
        assert "control character" in answer.text or "UTF-8" in answer.text
    else:
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def send_generated(operation: Operation, chosen: settings, check: Callable[[schemathesis.Case[Any]], None]) -> None:
    """Generates requests and checks each. `SCHEMA.parametrize()` would generate those of all operations in every
    process that collects tests."""
    build_operation_test(
        config=SCHEMA.config,
        operation=operation,
        test_func=seed(5)(chosen(check)),
        given_kwargs={},
        feedback=FeedbackSources(),
    )()


@each_operation
def test_with_a_token_every_response_is_as_described(operation: Operation, gateway: Gateway) -> None:
    def check(case: schemathesis.Case[Any]) -> None:
        validate(case, gateway.answer(case, {"Authorization": f"Bearer {gateway.token}"}))

    send_generated(operation, MANY, check)


@each_operation
def test_without_credentials_a_route_that_takes_them_is_refused(
    operation: Operation, gateway: Gateway, gateway_with_key: Gateway
) -> None:
    path = re.sub(r"\{[^}]*\}", "x", operation.full_path)

    def send(to: Gateway) -> httpx.Response:
        response: httpx.Response = to.portal.call(to.client.request, operation.method, f"http://127.0.0.1{path}")
        return response

    refused = send(gateway_with_key)
    if operation.definition.raw["security"]:
        assert_unauthorized(refused)
    else:
        assert refused.status_code != 401
    if {TOKEN: []} in operation.definition.raw["security"]:
        assert_unauthorized(send(gateway))


def test_every_route_is_described_with_its_errors() -> None:
    response: dict[str, Any] = SCHEMA.raw_schema
    operations = [
        (path, method, each) for path, methods in response["paths"].items() for method, each in methods.items()
    ]
    assert len(operations) > 30
    assert len({each["operationId"] for _, _, each in operations}) == len(operations)
    for path, method, each in operations:
        assert each["summary"], (method, path)
        assert each["tags"], (method, path)
        for status, answer in each["responses"].items():
            assert answer["description"]
            if int(status) >= 400:
                assert answer["content"] == {"application/json": {"schema": {"$ref": ENVELOPE}}}, (method, path, status)
        if path.startswith("/documents") or (path, method) == ("/search", "post"):
            assert each["security"] == [{TOKEN: []}, {KEY: ["documents"]}]
            assert {"401", "403", "422", "429", "503"} <= each["responses"].keys()
    assert response["components"]["securitySchemes"][TOKEN]["scheme"] == "bearer"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("post", "/api/v1/run", 429),
        ("post", "/tools/{tool_id}", 429),
        ("put", "/api/v1/workflows/{name}", 409),
        ("put", "/api/v1/workflows/{name}", 429),
        ("delete", "/api/v1/workflows/{name}", 409),
    ],
)
def test_refusals_that_no_generated_request_causes_are_described(method: str, path: str, status: int) -> None:
    assert str(status) in SCHEMA.raw_schema["paths"][path][method]["responses"]


@pytest.fixture(scope="module")
def other_document() -> dict[str, Any]:
    """The document of a gateway with other settings."""
    other = replace(SETTINGS, api_key="k", search_limit=7, search_threshold=0.25)
    document: dict[str, Any] = create_http_app(ServedApp(other)).openapi()
    return document


def test_a_gateway_with_a_key_documents_it(other_document: dict[str, Any]) -> None:
    response = other_document
    assert (response["security"], SCHEMA.raw_schema["security"]) == ([{KEY: []}], [{KEY: []}, {}])
    assert response["paths"]["/health"]["get"]["security"] == []


def test_the_defaults_of_tool_search_are_those_of_the_settings(other_document: dict[str, Any]) -> None:
    schemas = {each["name"]: each["schema"] for each in other_document["paths"]["/search"]["get"]["parameters"]}
    assert (schemas["limit"]["default"], schemas["threshold"]["default"]) == (7, 0.25)
