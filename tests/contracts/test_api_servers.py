"""The contract of connections to servers, for a server that is an API with an OpenAPI document. `test_tool_servers.py`
has the contract for MCP."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.pet_api import DOCUMENT, PETS, PNG, PetApi
from toolscript.adapters.openapi.client import OpenApiServers
from toolscript.domain.catalog import Item
from toolscript.domain.errors import InvalidArguments, LoginRequired, TimedOut, Unavailable, UpstreamFailed
from toolscript.domain.servers import CallResult, ServerSpec
from toolscript.ports.servers import ToolServer

pytestmark = [pytest.mark.slow, pytest.mark.req("O-01", "X-02")]

TIMEOUT_SECONDS = 60.0


@pytest.fixture
def api() -> Iterator[PetApi]:
    with PetApi() as api:
        yield api
        api.release.set()


class Connected:
    """A connected API and its tools by name."""

    def __init__(self, server: ToolServer, items: dict[str, Item]) -> None:
        self.server = server
        self.items = items

    async def call(self, tool: str, /, **arguments: Any) -> CallResult:
        return await self.server.call(self.items[tool], arguments, within=TIMEOUT_SECONDS)


@asynccontextmanager
async def connecting(
    spec: ServerSpec, lines: list[str] | None = None, max_bytes: int = 2**20
) -> AsyncIterator[Connected]:
    on_log = (lines if lines is not None else []).append
    async with OpenApiServers(max_bytes).connect(spec, within=TIMEOUT_SECONDS, on_log=on_log) as server:
        yield Connected(server, {item.name: item for item in (await server.list_items()).items})


async def test_every_operation_is_a_tool_with_its_hints(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        listing = await pets.server.list_items()
    assert listing.problems == []
    items = {item.name: item for item in listing.items}
    hints = {name: {k for k, v in (i.annotations or {}).items() if v is True} for name, i in items.items()}
    reads = {"readOnlyHint", "idempotentHint", "openWorldHint"}
    assert {name for name, each in hints.items() if each == reads} == {
        *("listPets", "getPet", "getPhoto", "search", "slow", "moved", "fail")
    }
    assert hints["deletePet"] == {"destructiveHint", "idempotentHint", "openWorldHint"}
    assert hints["put_pets_petId"] == {"idempotentHint", "openWorldHint"}
    assert hints["add-pet"] == {"openWorldHint"}
    assert items["listPets"].description == "List pets\n\nLists the pets of the shop, page by page."
    assert items["listPets"].parameters == ["limit", "cursor", "filter_kind"]


async def test_arguments_and_answers_have_schemas_that_stand_alone(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        new, found = pets.items["add-pet"].input_schema or {}, pets.items["listPets"].output_schema or {}
    assert (new["required"], list(new["properties"])) == (["name", "kind"], ["name", "kind", "weight", "parent"])
    assert new["properties"]["weight"] == {"type": ["number", "null"], "exclusiveMinimum": 0}
    assert new["properties"]["parent"] == {"$ref": "#/$defs/Pet"}
    assert new["$defs"]["Pet"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Pet"}
    assert found["properties"]["result"] == {"type": "array", "items": {"$ref": "#/$defs/Pet"}}


async def test_an_answer_in_json_is_structured_and_names_the_next_page(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        result = await pets.call("listPets", limit=2, filter_kind=["cat", "a,b"])
    assert (result.structured, result.is_error) == ({"result": PETS}, False)
    assert json.loads(result.content[0]["text"]) == PETS
    assert result.content[1]["text"] == 'There is a next page: call this tool again with cursor="c2", limit="2"'
    assert api.seen[-1]["path"] == "/v1/pets?limit=2&filter%5Bkind%5D=cat%2Ca%2Cb"


async def test_each_argument_goes_where_the_document_has_it(api: PetApi) -> None:
    async with connecting(api.spec(headers={"X-Key": "k", "Cookie": "own=1"})) as pets:
        await pets.call("getPet", petId="a/b c?#%2e", flavour="x;y=z", **{"X-Trace": "t 1"})
        seen = api.seen[-1]
        assert seen["path"] == "/v1/pets/a%2Fb%20c%3F%23%252e"
        assert (seen["headers"]["x-trace"], seen["headers"]["x-key"]) == ("t 1", "k")
        assert seen["headers"]["cookie"] == "own=1; flavour=x%3By%3Dz"
        await pets.call("search", where={"kind": "cat", "name": "Mia"})
        assert api.seen[-1]["path"] == "/v1/search?where%5Bkind%5D=cat&where%5Bname%5D=Mia"
        result = await pets.call("add-pet", name="Tom", kind="cat", weight=None)
        assert json.loads(api.seen[-1]["body"]) == {"name": "Tom", "kind": "cat", "weight": None}
        assert result.structured == {"id": 9, "name": "Tom", "kind": "cat", "weight": None}


async def test_a_file_is_uploaded_and_a_binary_answer_comes_back(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        sent = await pets.call("setPhoto", petId="7", photo=base64.b64encode(PNG).decode(), caption="Mia")
        seen = api.seen[-1]
        assert seen["headers"]["content-type"].startswith("multipart/form-data; boundary=")
        assert b'name="photo"; filename="photo"' in seen["body"]
        assert PNG in seen["body"]
        assert b'name="caption"\r\n\r\nMia' in seen["body"]
        assert sent.text == "thanks"
        photo = (await pets.call("getPhoto", petId="7")).content[0]
        assert photo == {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()}
        with pytest.raises(InvalidArguments, match="photo: must be the bytes of a file in base64"):
            await pets.call("setPhoto", petId="7", photo="no base64!")


async def test_an_answer_without_content_says_so(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        result = await pets.call("deletePet", petId="7")
    assert (result.text, result.is_error) == ("HTTP status 204 (No Content), without content", False)


async def test_an_error_is_a_result_with_status_and_problem(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        missing = await pets.call("getPet", petId="99")
        assert missing.is_error
        assert missing.text.startswith("HTTP status 404 (Not Found): No such pet: there is no /pets/99\n")
        assert missing.structured["body"]["title"] == "No such pet"
        busy = await pets.call("fail", status=429, text="slow down")
        assert busy.text == "HTTP status 429 (Too Many Requests)\nTry again after 7 seconds.\nslow down"


@pytest.mark.req("X-04")
async def test_secrets_of_the_configuration_are_not_repeated(api: PetApi) -> None:
    api.key, lines = "right", list[str]()
    async with connecting(api.spec(headers={"X-Key": "wrong-key"}), lines) as pets:
        refused = await pets.call("getPet", petId="7")
    assert refused.is_error
    assert "the key *** is not valid" in refused.text
    assert "wrong-key" not in f"{refused.raw}{lines}"
    assert lines[0] == f"read Pets 1.2.0 (OpenAPI 3.0.3): 11 operations at {api.url}"
    assert lines[1].startswith("GET /pets/{petId}: HTTP status 401 in ")


@pytest.mark.parametrize("is_late", [True, False], ids=["timeout", "cancelled"])
async def test_a_call_ends_at_its_timeout_or_when_it_is_cancelled(api: PetApi, is_late: bool) -> None:
    async with connecting(api.spec()) as pets:
        within = 0.3 if is_late else TIMEOUT_SECONDS
        call = asyncio.create_task(pets.server.call(pets.items["slow"], {}, within=within))
        while not is_late and not api.seen:  # noqa: ASYNC110  (another thread notes it)
            await asyncio.sleep(0.01)
        if not is_late:
            call.cancel()
        with pytest.raises(TimedOut if is_late else asyncio.CancelledError):
            await call
        assert (await pets.call("getPet", petId="7")).structured == PETS[0]


async def test_an_api_that_is_gone_fails_the_call_and_counts_as_lost() -> None:
    with PetApi() as api:
        spec = api.spec(url=api.url, openapi=str(DOCUMENT))
    async with connecting(spec) as pets:
        with pytest.raises(UpstreamFailed, match="cannot be reached") as failed:
            await pets.call("getPet", petId="7")
    assert isinstance(failed.value.__cause__, Unavailable)


@pytest.mark.req("X-11")
async def test_an_answer_above_the_limit_fails_and_the_next_call_works(api: PetApi) -> None:
    async with connecting(api.spec(), max_bytes=1000) as pets:
        with pytest.raises(UpstreamFailed, match=r"larger than .* raise TOOLSCRIPT_CALL_MAX_MIB"):
            await pets.call("fail", status=200, text="x" * 2000)
        assert (await pets.call("getPet", petId="7")).structured == PETS[0]


@pytest.mark.req("X-11")
async def test_an_address_that_is_too_long_to_send_is_refused(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        with pytest.raises(InvalidArguments, match="the arguments make an address that cannot be sent: URL too long"):
            await pets.call("search", where={"name": "a" * 70_000})
    assert api.seen == []


async def test_parameters_with_a_configured_cookie_are_no_arguments(api: PetApi) -> None:
    async with connecting(api.spec(headers={"Cookie": "a=1; flavour=mine"})) as pets:
        assert pets.items["getPet"].parameters == ["petId", "X-Trace"]


@pytest.mark.req("X-11")
async def test_a_path_argument_cannot_leave_its_segment_nor_a_header_its_line(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        for value in ("..", ".", "", "../admin", "a/../../admin", "..\\admin", "a\nb"):
            with pytest.raises(InvalidArguments, match="petId"):
                await pets.call("getPet", petId=value)
        for value in ("a\r\nX-Admin: 1", "a\nb", "grüße"):
            with pytest.raises(InvalidArguments, match="X-Trace: must be one line"):
                await pets.call("getPet", petId="7", **{"X-Trace": value})
    assert api.seen == []


@pytest.mark.req("X-11")
async def test_a_cookie_that_the_api_sets_goes_to_no_other_caller(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        await pets.call("search")
        await pets.call("getPet", petId="7")
    assert "cookie" not in api.seen[-1]["headers"]


@pytest.mark.req("X-11")
async def test_a_redirect_is_followed_below_the_base_address_and_nowhere_else(api: PetApi) -> None:
    with PetApi() as other:
        async with connecting(api.spec(headers={"X-Key": "secret-key"})) as pets:
            assert (await pets.call("moved", to="/v1/pets/7")).structured == PETS[0]
            for target in (f"{other.url}/pets/7", "/admin", "/v1/../admin", "/v1x"):
                refused = await pets.call("moved", to=target)
                assert refused.is_error
                assert "which is not followed" in refused.text
    assert other.seen == []
    assert all(each["path"].startswith("/v1/") for each in api.seen)


@pytest.mark.req("X-11")
async def test_the_address_of_a_document_counts_only_within_its_origin(api: PetApi) -> None:
    with PetApi() as other:
        api.document = api.document.replace(b"url: /v1", f"url: '{other.url}'".encode())
        with pytest.raises(Unavailable, match=r'which is not where the document itself is: .* add "url"'):
            async with connecting(api.spec()):
                pytest.fail("connected")
        async with connecting(api.spec(url=other.url, headers={"X-Key": "secret-key"})) as pets:
            await pets.call("getPet", petId="7")
        assert (len(other.seen), api.seen) == (1, [])


async def test_parameters_with_a_value_in_the_configuration_are_no_arguments(api: PetApi) -> None:
    async with connecting(api.spec(url=f"{api.url}?key=abcd", headers={"X-Trace": "mine"})) as pets:
        assert pets.items["search"].parameters == ["where"]
        assert pets.items["getPet"].parameters == ["petId", "flavour"]
        await pets.call("search", key="theirs")
        await pets.call("getPet", petId="7", **{"X-Trace": "theirs"})
    assert api.seen[0]["path"] == "/v1/search?key=abcd"
    assert api.seen[1]["headers"]["x-trace"] == "mine"


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (("get*",), (), {"getPet", "getPhoto"}),
        (("tag:pets",), ("DELETE *",), {"listPets", "add-pet", "getPet"}),
        (("/pets/*",), ("/pets/{petId}/*", "tag:admin"), {"getPet", "put_pets_petId"}),
        (("GET /s*",), (), {"search", "slow"}),
        (None, ("* /pets*", "fail", "[ms]*"), set()),
    ],
)
async def test_operations_are_chosen_by_name_path_method_and_tag(
    api: PetApi, include: tuple[str, ...] | None, exclude: tuple[str, ...], names: set[str]
) -> None:
    async with connecting(api.spec(include_tools=include, exclude_tools=exclude)) as pets:
        assert pets.items.keys() == names


async def test_a_changed_file_is_noticed_and_an_old_definition_is_not_called(api: PetApi, tmp_path: Path) -> None:
    file = tmp_path / "pets.yaml"
    file.write_bytes(DOCUMENT.read_bytes())
    async with connecting(api.spec(url=api.url, openapi=str(file))) as pets, asyncio.timeout(TIMEOUT_SECONDS):
        file.write_text(DOCUMENT.read_text("utf-8").replace("operationId: listPets", "operationId: deletePet2"))
        await pets.server.ping()
        await pets.server.wait_for_change()
        old = pets.items["listPets"]
        assert "deletePet2" in {item.name for item in (await pets.server.list_items()).items}
        with pytest.raises(UpstreamFailed, match="is no longer what it was"):
            await pets.server.call(old, {}, within=TIMEOUT_SECONDS)


async def test_what_an_api_cannot_do_is_an_error(api: PetApi) -> None:
    async with connecting(api.spec()) as pets:
        assert await pets.server.complete({}, within=1) == {"completion": {"values": []}}
        with pytest.raises(UpstreamFailed, match="reports no changes"):
            await pets.server.follow_resource("x://y", on_start=lambda: None, on_update=lambda _: None)


@pytest.mark.req("X-03")
async def test_a_bad_document_is_named_with_the_place(api: PetApi) -> None:
    api.document = b"openapi: 3.0.0\npaths:\n  /a: ]"
    with pytest.raises(Unavailable, match=r"openapi.yaml: not valid YAML: .* \(line 3, column 7\)"):
        async with connecting(api.spec()):
            pytest.fail("connected")


@pytest.mark.req("X-11")
async def test_a_document_that_grows_without_end_is_given_up(api: PetApi) -> None:
    levels = "".join(f"a{n}: &a{n} {{{', '.join(f'k{k}: *a{n - 1}' for k in range(9))}}}\n" for n in range(1, 30))
    growing = f"openapi: 3.0.0\na0: &a0 {{x: 1}}\n{levels}paths:\n  /a:\n    get:\n      requestBody: {{content: "
    api.document = f"{growing}{{application/json: {{schema: {{properties: *a29}}}}}}}}\n".encode()
    async with connecting(api.spec()) as bounded:
        assert len(json.dumps(bounded.items["get_a"].input_schema)) < 40_000


@pytest.mark.req("X-11")
async def test_a_document_elsewhere_gets_no_credentials_and_its_redirects_lead_nowhere() -> None:
    async with AsyncExitStack() as stack:
        api, other = (stack.enter_context(PetApi()) for _ in range(2))
        moved = f"{other.url}/moved?to={api.url}/pets"
        spec = api.spec(url=api.url, openapi=moved, headers={"X-Key": "secret-key"})
        with pytest.raises(Unavailable, match=r"redirects to .*: give that address instead"):
            await stack.enter_async_context(connecting(spec))
        assert "x-key" not in other.seen[0]["headers"]
        assert api.seen == []


class Tokens:
    """The tokens of a login, of which the second is valid."""

    def __init__(self) -> None:
        self.scopes: list[str] = []

    async def get_token(self, spec: ServerSpec) -> str | None:
        return "old-token"

    async def renew_token(self, spec: ServerSpec, refused: str | None) -> str | None:
        return None

    async def want_scope(self, spec: ServerSpec, scope: str) -> None:
        self.scopes.append(scope)


@pytest.mark.req("G-11")
async def test_a_login_is_used_and_its_end_asks_for_a_new_one(api: PetApi) -> None:
    async with OpenApiServers(2**20, Tokens()).connect(api.spec(), within=TIMEOUT_SECONDS) as server:
        pets = Connected(server, {item.name: item for item in (await server.list_items()).items})
        await pets.call("getPet", petId="7")
        assert api.seen[-1]["headers"]["authorization"] == "Bearer old-token"
        api.challenge = "Bearer"
        with pytest.raises(LoginRequired, match="pets__getPet: it refuses its login: run `toolscript login pets`"):
            await pets.call("getPet", petId="7")
