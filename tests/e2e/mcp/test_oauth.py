"""A client that knows nothing but the address of the gateway logs in at a real authorization server, and works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.fixtures.serving import fill_searches, serve
from tests.servers.logins import Authorization, follow_redirects, serving_authorization
from tests.servers.processes import find_free_port
from toolscript.app.app import open_app
from toolscript.domain.catalog import Item
from toolscript.settings import Settings, load_settings

pytestmark = pytest.mark.req("G-12")

SCOPES = "search call documents knowledge"
REDIRECT = "http://127.0.0.1:7777/callback"


class Memory:
    """Keeps what a client stores."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class User:
    """A user with a browser, who consents to everything."""

    def __init__(self) -> None:
        self.scopes: list[str] = []
        self._sent_back = ""

    async def visit(self, url: str) -> None:
        self.scopes.append(parse_qs(urlsplit(url).query)["scope"][0])
        self._sent_back = follow_redirects(url)

    async def return_code(self) -> AuthorizationCodeResult:
        answer = {name: values[0] for name, values in parse_qs(urlsplit(self._sent_back).query).items()}
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))


@pytest.fixture
def authorization() -> Iterator[Authorization]:
    with serving_authorization(scopes=SCOPES) as server:
        yield server


def make_settings(folder: Path, authorization: Authorization, **more: Any) -> Settings:
    port = find_free_port()
    return load_settings(
        variables={},
        data_dir=folder,
        search_model="hashed-64",
        port=port,
        oauth_resource=f"http://127.0.0.1:{port}/mcp",
        jwt_issuer=authorization.issuer,
        jwt_jwks=f"{authorization.issuer}/jwks",
        **more,
    )


@asynccontextmanager
async def connect(url: str, memory: Memory, user: User) -> AsyncIterator[Client]:
    """A client that logs in when it is refused."""
    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(REDIRECT)], client_name="a client", token_endpoint_auth_method="none"
    )
    auth = OAuthClientProvider(f"{url}/mcp", metadata, memory, user.visit, user.return_code)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield client


async def test_a_client_logs_in_by_itself_and_searches(tmp_path: Path, authorization: Authorization) -> None:
    memory, user = Memory(), User()
    async with open_app(make_settings(tmp_path, authorization), serving=True) as app:
        await fill_searches(app)
        await app.catalogue.sync.run([Item("disk", "read_file", "Read a file")])
        async with serve(app) as url, connect(url, memory, user) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            found = await client.call_tool("search_tools", {"query": "read a file"})
    assert set(user.scopes[0].split()) >= set(SCOPES.split()), "the scopes that the refusal names"
    assert memory.tokens is not None
    assert {"search_tools", "call_tool", "search_knowledge"} <= tools
    assert "disk__read_file" in str(found.content)


@pytest.mark.extended
async def test_a_token_for_another_gateway_is_refused(tmp_path: Path, authorization: Authorization) -> None:
    one, other = (make_settings(tmp_path / name, authorization) for name in ("one", "other"))
    memory = Memory()
    async with (
        open_app(one, serving=True) as app,
        open_app(other, serving=True) as second,
        serve(app) as url,
        serve(second) as elsewhere,
        httpx2.AsyncClient(timeout=60) as http,
    ):
        async with connect(url, memory, User()) as client:
            assert (await client.list_tools()).tools
        assert memory.tokens is not None
        headers = {"Authorization": f"Bearer {memory.tokens.access_token}"}
        assert (await http.get(f"{url}/tools", headers=headers)).status_code == 200
        refused = await http.get(f"{elsewhere}/tools", headers=headers)
    assert refused.status_code == 401
    assert "audience" in refused.json()["error"]["message"]
