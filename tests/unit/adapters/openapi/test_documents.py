"""Documents of each version, good and bad, become tools and the plans of their requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from toolscript.adapters.openapi.document import BadDocument, parse_document
from toolscript.adapters.openapi.operations import write_lines
from toolscript.adapters.openapi.request import BaseAddress, build_request
from toolscript.adapters.openapi.source import _collect
from toolscript.domain.errors import InvalidArguments
from toolscript.domain.servers import ServerSpec, Transport

pytestmark = pytest.mark.req("O-01")

BASE = BaseAddress.parse("https://api.example.com/v1/")


def read(document: dict[str, Any], *given: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The operations by name, and the problems."""
    lines = [json.loads(line) for line in write_lines(parse_document(json.dumps(document).encode()), frozenset(given))]
    return {each["tool"]["name"]: each for each in lines[1:-1]}, lines[-1]["problems"]


def make_api(operation: dict[str, Any], path: str = "/a", method: str = "post", **more: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "paths": {path: {method: operation}}, **more}


def make_body(schema: Any, media: str = "application/json", **more: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media: {"schema": schema, **more}}}}


def read_input(schema: Any, **components: Any) -> dict[str, Any]:
    operations, problems = read(make_api(make_body(schema), components={"schemas": components}))
    assert problems == []
    written: dict[str, Any] = operations["post_a"]["tool"]["inputSchema"]
    Draft202012Validator.check_schema(written)
    return written


def send(document: dict[str, Any], **arguments: Any) -> Any:
    """The request of the only operation."""
    (operation,) = read(document)[0].values()
    return build_request(operation["plan"], arguments, BASE, {})


def test_swagger_2_becomes_the_same_tools() -> None:
    document = {
        "swagger": "2.0",
        "consumes": ["application/json"],
        "produces": ["application/json"],
        "parameters": {"Id": {"name": "id", "in": "path", "type": "integer", "required": True}},
        "definitions": {"Pet": {"type": "object", "properties": {"name": {"type": "string", "x-nullable": True}}}},
        "paths": {
            "/pets/{id}": {
                "parameters": [{"$ref": "#/parameters/Id"}],
                "put": {
                    "operationId": "putPet",
                    "parameters": [
                        {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}},
                        {"name": "tags", "in": "query", "type": "array", "items": {"type": "string"}},
                        {"name": "ids", "in": "query", "type": "array", "items": {}, "collectionFormat": "multi"},
                    ],
                    "responses": {"200": {"schema": {"$ref": "#/definitions/Pet"}}},
                },
                "post": {
                    "operationId": "upload",
                    "parameters": [
                        {"name": "file", "in": "formData", "type": "file", "required": True},
                        {"name": "note", "in": "formData", "type": "string"},
                    ],
                },
            }
        },
    }
    operations, problems = read(document)
    assert problems == []
    put, upload = operations["putPet"], operations["upload"]
    assert put["tool"]["inputSchema"]["properties"]["name"] == {"type": ["string", "null"]}
    assert put["tool"]["inputSchema"]["required"] == ["id"]
    assert list(put["tool"]["outputSchema"]["properties"]) == ["name"]
    assert upload["tool"]["inputSchema"]["properties"]["file"]["contentEncoding"] == "base64"
    request = build_request(put["plan"], {"id": 3, "tags": ["a", "b"], "ids": [1, 2], "name": None}, BASE, {})
    assert request.url == "https://api.example.com/v1/pets/3?tags=a%2Cb&ids=1&ids=2"
    assert request.content == b'{"name": null}'
    sent = build_request(upload["plan"], {"id": 3, "file": "aGk=", "note": "x"}, BASE, {})
    assert (sent.files, sent.form) == (
        [("file", ("file", b"hi", "application/octet-stream"))],
        {"note": ["x"]},
    )


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "integer", "maximum": 3, "exclusiveMaximum": True}, {"type": "integer", "exclusiveMaximum": 3}),
        (
            {"allOf": [{"$ref": "#/components/schemas/A"}], "description": "x"},
            {"$ref": "#/$defs/A", "description": "x"},
        ),
        ({"$ref": "#/components/schemas/A", "nullable": True}, {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}),
        ({"type": "any", "required": True, "minimum": "x", "xml": {}, "discriminator": {}}, {}),
        ({"type": ["string", {}], "items": [], "properties": 7, "enum": []}, {"type": "string"}),
        ({"type": "string", "example": "e"}, {"type": "string", "examples": ["e"]}),
        ({"$ref": "other.yaml#/A"}, {}),
        (
            {"allOf": [{"properties": {"x": {"type": "string"}}}, {"required": ["x"], "type": "object"}]},
            {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
        ),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, {"allOf": [{"type": "string"}, {"minLength": 1}]}),
    ],
)
def test_a_schema_is_written_in_json_schema_and_stands_alone(schema: Any, written: Any) -> None:
    document = make_api(make_body({"type": "object", "properties": {"p": schema}}), components={"schemas": {"A": {}}})
    tool = read(document)[0]["post_a"]["tool"]
    assert tool["inputSchema"]["properties"]["p"] == written
    Draft202012Validator.check_schema(tool["inputSchema"])


def test_references_in_circles_end() -> None:
    circle = {"allOf": [{"$ref": "#/components/schemas/B"}], "properties": {"next": {"$ref": "#/components/schemas/A"}}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/A"}}}
    written = read_input(schema, A=circle, B={"allOf": [{"$ref": "#/components/schemas/A"}]})
    assert written["properties"]["a"] == {"$ref": "#/$defs/A"}
    looping, problems = read(make_api(make_body({"$ref": "#/x"}), x={"$ref": "#/x"}))
    assert list(looping) == ["post_a"]
    assert any("circle of references" in each for each in problems)


def test_a_large_schema_keeps_what_is_nearest_to_its_root() -> None:
    text = {"title": "x" * 500}
    parts = {
        f"P{n}": {"properties": {"next": {"$ref": f"#/components/schemas/P{n + 1}"}, "t": text}} for n in range(200)
    }
    written = read_input({"type": "object", "properties": {"p": {"$ref": "#/components/schemas/P0"}}}, **parts, P200={})
    assert len(json.dumps(written)) < 33_000
    assert "title" in written["$defs"]["P9"]["properties"]["t"]
    names = set(written["$defs"])
    assert all(f'"#/$defs/{name}"' in json.dumps(written) for name in names)
    wide = {"properties": {f"p{n}": {"properties": {"deep": {"title": "y" * 90}}} for n in range(900)}}
    assert len(json.dumps(read_input({"type": "object", "properties": {"p": wide}}))) < 33_000


@pytest.mark.parametrize(
    ("operations", "names"),
    [
        ({"/a/{b}": {"get": {}}}, ["get_a_b"]),
        ({"/a": {"get": {"operationId": "a/b c"}}}, ["a_b_c"]),
        ({"/a": {"get": {"operationId": "x"}}, "/b": {"get": {"operationId": "x"}}}, ["x", "get_b"]),
        ({"/a": {"get": {"operationId": "日本"}}, "/A": {"get": {}}}, ["get_a", "get_A"]),
        ({"/a-": {"get": {}}, "/a_": {"get": {}}}, ["get_a", "get_a_2"]),
        ({"/a": {"get": {"operationId": "x" * 200}}}, ["x" * 64]),
    ],
)
def test_each_operation_has_a_usable_name_of_its_own(operations: Any, names: list[str]) -> None:
    assert list(read({"openapi": "3.0.0", "paths": operations})[0]) == names


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        ({"/a": {"get": []}}, "/paths/~1a/get: must be an object, not a list: left out"),
        ({"/a": 7}, "/paths/~1a: must be an object of operations by method, not a number"),
        ({"/../a": {"get": {}}}, "/paths/~1..~1a/get: the path must begin with / and have no segments"),
        ({"/a": {"get": {"parameters": [{"in": "query"}]}}}, "/paths/~1a/get/parameters/0: must be an object with"),
        ({"/a": {"get": {"parameters": [{"name": "b", "in": "hat"}]}}}, "/paths/~1a/get: parameter 'b': `in`"),
        ({"/a": {"$ref": "#/nowhere"}}, "/paths/~1a: the reference #/nowhere leads nowhere"),
        ({"/a": {"$ref": "other.yaml"}}, "/paths/~1a: refers to another document (other.yaml): bundle both into one"),
        ({"/a": {"get": {"servers": [{"url": "https://b.example"}]}}}, "/paths/~1a/get: its own `servers`"),
    ],
)  # fmt: skip
def test_a_flaw_costs_its_operation_and_names_the_place(paths: Any, problem: str) -> None:
    operations, problems = read({"openapi": "3.0.0", "paths": {**paths, "/fine": {"get": {}}}})
    assert "get_fine" in operations
    assert (len(problems), problems[0][: len(problem)]) == (1, problem)


@pytest.mark.parametrize(
    ("parameter", "value", "url"),
    [
        ({"in": "query"}, ["a", "b&c"], "?p=a&p=b%26c"),
        ({"in": "query", "explode": False}, ["a", "b"], "?p=a%2Cb"),
        ({"in": "query", "style": "pipeDelimited"}, ["a", "b"], "?p=a%7Cb"),
        ({"in": "query", "style": "deepObject"}, {"a": {"b": 1}}, "?p%5Ba%5D%5Bb%5D=1"),
        ({"in": "query", "style": "deepObject"}, {"c": [True]}, "?p%5Bc%5D%5B0%5D=true"),
        ({"in": "query"}, {"a": 1}, "?a=1"),
        ({"in": "query", "content": {"application/json": {"schema": {}}}}, {"a": 1}, "?p=%7B%22a%22%3A%201%7D"),
        ({"in": "query"}, None, ""),
        ({"in": "path"}, ["a/", "b"], "/a%2F,b"),
        ({"in": "path", "style": "label"}, "x", "/.x"),
        ({"in": "path", "style": "matrix"}, "x", "/;p=x"),
    ],
)  # fmt: skip
def test_a_parameter_is_written_as_its_style_says(parameter: dict[str, Any], value: Any, url: str) -> None:
    path = "/a/{p}" if parameter["in"] == "path" else "/a"
    document = make_api({"parameters": [{"name": "p", **parameter}]}, path, "get")
    assert send(document, p=value).url == f"https://api.example.com/v1/a{url}"


@pytest.mark.parametrize(
    ("path", "url"), [("/users/{user id}", "/users/a%20b"), ("/x y/{größe}.json", "/x%20y/a%20b.json")]
)
def test_a_variable_of_a_path_may_have_any_name(path: str, url: str) -> None:
    (argument,) = read(make_api({}, path, "get"))[0].popitem()[1]["tool"]["inputSchema"]["required"]
    assert send(make_api({}, path, "get"), **{argument: "a b"}).url == f"https://api.example.com/v1{url}"


@pytest.mark.req("X-04")
def test_no_argument_replaces_a_configured_cookie() -> None:
    cookies = [{"name": name, "in": "cookie"} for name in ("session", "theme")]
    (operation,) = read(make_api({"parameters": cookies}))[0].values()
    sent = {"session": "evil", "theme": "dark"}
    request = build_request(operation["plan"], sent, BASE, {"Cookie": "a=1; session=SECRET"})
    assert request.headers["Cookie"] == "a=1; session=SECRET; theme=dark"


@pytest.mark.req("X-11")
def test_a_small_document_cannot_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    paths: dict[str, Any] = {"/0": {"get": {"description": "x" * 200_000}}}
    paths |= {f"/{number}": {"$ref": "#/paths/~10"} for number in range(1, 200)}
    document = {"openapi": "3.0.0", "paths": paths}
    operations, problems = read(document)
    assert len(json.dumps(operations)) < 5_000_000
    assert problems[0] == "/paths/~10/get: the description has 200000 characters: the first 20000 are kept"
    monkeypatch.setattr("toolscript.adapters.openapi.operations.MAX_CHARACTERS", 2_000_000)
    with pytest.raises(BadDocument, match="is there a reference that grows"):
        read(document)


def test_what_goes_wrong_halfway_is_the_reason() -> None:
    output = b'{"about": {}}\n{"error": "needs too much memory"}\n'
    with pytest.raises(ValueError, match="needs too much memory"):
        _collect(ServerSpec("s", Transport.OPENAPI), output)


def test_a_form_is_sent_as_a_form_and_a_text_as_a_text() -> None:
    fields = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "object"}}}
    form = send(make_api(make_body(fields, "application/x-www-form-urlencoded")), a="ü&", b={"c": 1})
    assert form.content == b"a=%C3%BC%26&b%5Bc%5D=1"
    assert send(make_api(make_body({}, "text/plain")), body="hé").content == "hé".encode()
    assert send(make_api(make_body({}, "application/zip")), body="aGk=").content == b"hi"
    with pytest.raises(InvalidArguments, match="body: must be the bytes of a file"):
        send(make_api(make_body({}, "application/zip")), body="?")


def test_a_body_that_is_no_plain_object_is_one_argument() -> None:
    either = {"oneOf": [{"type": "object"}, {"type": "array"}]}
    request = send(
        make_api({**make_body(either), "parameters": [{"name": "body", "in": "query"}]}), request_body=[1], body=2
    )
    assert (request.url, request.content) == ("https://api.example.com/v1/a?body=2", b"[1]")


def test_an_answer_that_is_not_always_json_has_no_schema() -> None:
    json_answer = {"content": {"application/json": {"schema": {"type": "object"}}}}
    mixed = make_api({"responses": {"200": json_answer, "204": {"description": "Gone"}}})
    assert "outputSchema" not in read(mixed)[0]["post_a"]["tool"]
    assert "outputSchema" in read(make_api({"responses": {"200": json_answer}}))[0]["post_a"]["tool"]


@pytest.mark.parametrize(
    ("url", "is_inside"),
    [
        ("https://api.example.com/v1/a", True),
        ("https://api.example.com:443/v1?x=1", True),
        ("https://api.example.com/v2", False),
        ("https://api.example.com/v1x", False),
        ("https://api.example.com/v1/%2e%2E/a", False),
        ("http://api.example.com/v1/a", False),
        ("https://api.example.com:444/v1/a", False),
        ("https://api.example.com@evil.example/v1/a", False),
    ],
)
@pytest.mark.req("X-11")
def test_the_base_address_contains_only_what_is_below_it(url: str, is_inside: bool) -> None:
    assert BASE.contains(url) is is_inside


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"openapi: 3.0.0\npaths:\n  /a: ]", r"not valid YAML: .* \(line 3, column 7\)"),
        (b'{"openapi": "3.0.0",\n "paths": {]}', r"not valid JSON: .* \(line 2, column 12\)"),
        (b"name: x\n", r"not an OpenAPI document: it has no key `openapi` or `swagger` \(its keys: name\)"),
        (b"openapi: 4.0.0\npaths: {}", r"/openapi: version '4.0.0' is not supported: use swagger 2.0"),
        (b"openapi: 3.0.0\npaths: []", r"/paths: must be an object of operations by path, not a list"),
        (b"- 1", r"must be an object with `openapi` or `swagger`, not a list"),
        (b"\xff\xff", r"not valid UTF-8 \(line 1\)"),
        (b"[" * 100_000, r"nested too deeply"),
        (b"openapi: 3.0.0\nx: !!bool maybe", r"not valid JSON or YAML"),
        (b"openapi: 3.0.0\nx: !!timestamp zz", r"not valid JSON or YAML"),
        (b"{" * 100_000, r"not valid JSON|nested too deeply"),
    ],
)
@pytest.mark.req("X-03")
def test_a_bad_document_names_the_place_and_what_is_allowed(document: bytes, problem: str) -> None:
    with pytest.raises(BadDocument, match=problem):
        parse_document(document)


@pytest.mark.req("O-01", "X-04")
@pytest.mark.parametrize("path", ["/a", "/a?key=theirs"])
def test_neither_an_object_of_free_names_nor_the_document_replaces_a_configured_query(path: str) -> None:
    free = {"name": "filter", "in": "query", "schema": {"type": "object", "additionalProperties": {"type": "string"}}}
    (operation,) = read(make_api({"parameters": [free]}, path=path, method="get"), "query:key")[0].values()
    base = BaseAddress.parse("https://api.example.com/v1?key=configured")
    request = build_request(operation["plan"], {"filter": {"key": "theirs", "KEY": "theirs", "a": "b"}}, base, {})
    assert request.url == "https://api.example.com/v1/a?key=configured&a=b"
