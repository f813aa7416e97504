"""Logging in at a real authorization server: discovery, the kinds of clients, and what is refused."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.servers.logins import (
    Authorization,
    ProtectedServer,
    UserWithBrowser,
    recording_requests,
    serving_authorization,
    serving_protected,
)
from toolscript.adapters.mcp.oauth.servers import OAuthServers
from toolscript.domain.errors import Invalid, Unauthorized, Unavailable, UpstreamFailed
from toolscript.domain.logins import Login
from toolscript.domain.servers import ServerSpec, Transport

pytestmark = [pytest.mark.req("G-11", "X-04"), pytest.mark.slow]

DOCUMENT = "https://toolscript.example/client.json"
DOCUMENTS = {
    DOCUMENT: {
        "client_id": DOCUMENT,
        "client_name": "Toolscript",
        "redirect_uris": ["http://127.0.0.1/callback"],
        "application_type": "native",
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
    }
}


@pytest.fixture(scope="module")
def authorization() -> Iterator[Authorization]:
    with serving_authorization(documents=DOCUMENTS) as server:
        yield server


@pytest.fixture(scope="module")
def web(authorization: Authorization) -> Iterator[ProtectedServer]:
    with serving_protected(authorization.issuer) as server:
        yield server


async def _log_in(spec: ServerSpec, user: UserWithBrowser | None = None, *scopes: str) -> Login:
    return await OAuthServers().authorize(spec, user or UserWithBrowser(), scopes)


@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.SSE])
async def test_a_login_finds_the_authorization_server_and_registers(
    authorization: Authorization, web: ProtectedServer, transport: Transport
) -> None:
    user, clients = UserWithBrowser(), authorization.get_record()["clients"]
    spec = web.make_spec(transport)
    login = await _log_in(spec, user)
    query = parse_qs(urlsplit(user.visited[0]).query)
    assert query["code_challenge_method"] == ["S256"]
    assert query["resource"] == [spec.url] == [login.resource]
    assert query["scope"] == ["tools:read offline_access"]
    assert login.issuer == authorization.issuer
    assert login.refresh_token
    assert authorization.get_record()["clients"] == clients + 1


async def test_metadata_is_found_at_its_well_known_place_too(authorization: Authorization) -> None:
    with serving_protected(authorization.issuer, hint=False) as server:
        assert (await _log_in(server.make_spec())).access_token


async def test_a_client_id_document_is_preferred_to_a_registration(
    authorization: Authorization, web: ProtectedServer
) -> None:
    clients = authorization.get_record()["clients"]
    assert (await _log_in(web.make_spec(client_id=DOCUMENT))).client_id == DOCUMENT
    assert authorization.get_record()["clients"] == clients


async def test_a_server_without_support_for_documents_gets_a_registration() -> None:
    with serving_authorization() as authorization, serving_protected(authorization.issuer) as server:
        assert (await _log_in(server.make_spec(client_id=DOCUMENT))).client_id != DOCUMENT
        assert authorization.get_record()["clients"] == 1


async def test_a_configured_client_logs_in_renews_and_revokes_with_its_secret(
    authorization: Authorization, web: ProtectedServer
) -> None:
    spec = web.make_spec(
        client_id="configured", client_secret="configured-secret-of-the-client", scopes=("tools:read",)
    )
    user = UserWithBrowser()
    login = await _log_in(spec, user)
    assert parse_qs(urlsplit(user.visited[0]).query)["scope"] == ["tools:read"]
    assert login.client_id == "configured"
    more = await _log_in(web.make_spec(client_id="configured", client_secret=spec.oauth.client_secret))
    renewed = await OAuthServers().refresh(more)
    assert renewed.refresh_token != more.refresh_token
    assert await OAuthServers().revoke(renewed)
    with pytest.raises(Unauthorized, match="invalid_grant"):
        await OAuthServers().refresh(renewed)


async def test_without_a_registration_the_configuration_needs_a_client_id() -> None:
    with (
        serving_authorization(registration=False) as authorization,
        serving_protected(authorization.issuer) as server,
        pytest.raises(Invalid, match=r"oauth\.clientId.*server web"),
    ):
        await _log_in(server.make_spec())


async def test_a_wrong_secret_issues_no_token(web: ProtectedServer) -> None:
    with pytest.raises(Unauthorized, match="issued no token: HTTP status 401, invalid_client"):
        await _log_in(web.make_spec(client_id="configured", client_secret="wrong-secret-of-the-client"))


async def test_an_answer_of_another_issuer_is_refused_before_its_code_is_used(
    authorization: Authorization, web: ProtectedServer
) -> None:
    grants = authorization.get_record()["grants"]
    for change in (
        lambda url: url.replace("iss=", "iss=https%3A%2F%2Fevil.example&old="),
        lambda url: url.replace("iss=", "old="),
    ):
        with pytest.raises(Unauthorized, match="mixed-up issuer"):
            await _log_in(web.make_spec(), UserWithBrowser(change=change))
    assert authorization.get_record()["grants"] == grants


async def test_metadata_that_names_another_issuer_is_refused(authorization: Authorization) -> None:
    other = authorization.issuer.replace("127.0.0.1", "localhost")
    user = UserWithBrowser()
    with (
        serving_protected(authorization.issuer, listed_issuer=other) as server,
        pytest.raises(UpstreamFailed, match="mixed-up issuer"),
    ):
        await _log_in(server.make_spec(), user)
    assert user.visited == []


async def test_an_answer_of_another_login_is_refused(web: ProtectedServer) -> None:
    user = UserWithBrowser(change=lambda url: url.replace("state=", "state=x"))
    with pytest.raises(Unauthorized, match="its state is another"):
        await _log_in(web.make_spec(), user)


async def test_a_refused_login_is_named_without_what_the_server_wrote(web: ProtectedServer) -> None:
    def refuse(url: str) -> str:
        return f"{url.replace('code=', 'old=')}&error=access_denied&error_description=secret"

    with pytest.raises(Unauthorized, match=r"cancelled or refused at \S+ \(access_denied\), and nothing has changed$"):
        await _log_in(web.make_spec(), UserWithBrowser(change=refuse))


async def test_a_server_that_describes_itself_as_another_resource_is_refused(authorization: Authorization) -> None:
    user = UserWithBrowser()
    with (
        serving_protected(authorization.issuer, resource="https://bank.example/mcp") as server,
        pytest.raises(UpstreamFailed, match=r"another resource: bank\.example"),
    ):
        await _log_in(server.make_spec(), user)
    assert user.visited == []


async def test_a_token_for_another_audience_is_not_stored(authorization: Authorization) -> None:
    with (
        serving_protected(authorization.issuer, audience="https://other.example/mcp") as server,
        pytest.raises(UpstreamFailed, match="another audience"),
    ):
        await _log_in(server.make_spec())


async def test_plain_http_to_another_host_is_refused(authorization: Authorization) -> None:
    with (
        serving_protected(authorization.issuer, listed_issuer="http://login.example") as server,
        pytest.raises(UpstreamFailed, match=r"not an https address: http://login\.example"),
    ):
        await _log_in(server.make_spec())


async def test_a_server_without_a_login_is_named() -> None:
    with recording_requests() as (address, _), pytest.raises(UpstreamFailed, match="does not ask for a login"):
        await _log_in(ServerSpec("open", Transport.HTTP, url=f"{address}/mcp"))
    with pytest.raises(Unavailable, match=r"no answer from 127\.0\.0\.1:9: ConnectError"):
        await _log_in(ServerSpec("gone", Transport.HTTP, url="http://127.0.0.1:9/mcp"))


async def test_a_refresh_token_is_not_sent_to_another_host_that_a_token_endpoint_redirects_to(
    authorization: Authorization,
) -> None:
    with (
        recording_requests() as (elsewhere, requests),
        serving_protected(authorization.issuer, moved_to=f"{elsewhere}/token") as server,
        pytest.raises(Unavailable, match="HTTP status 307"),
    ):
        await OAuthServers().refresh(_make_login(server.moved))
    assert requests == []


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b'{"access_token": ["the-secret"], "token_type": "Bearer"}', Unavailable),
        (200, b"the-secret", Unavailable),
        (200, b'{"access_token": "' + b"the-secret" * 200_000 + b'"}', UpstreamFailed),
        (500, b'{"error": "the-secret", "error_description": "the-secret"}', Unavailable),
        (400, b'{"error": "invalid_grant", "error_description": "the-secret"}', Unauthorized),
        (400, b'{"error": {"the-secret": 1}}', Unauthorized),
    ],
)
async def test_what_a_token_endpoint_answers_is_not_repeated(
    status: int, body: bytes, kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    with recording_requests(status, body) as (address, _), pytest.raises(kind) as caught:
        await OAuthServers().refresh(_make_login(f"{address}/token"))
    shown = "".join(traceback.format_exception(caught.value))
    assert "the-secret" not in shown + caplog.text
    assert "the-refresh-token" not in shown + caplog.text


@pytest.mark.req("X-11")
@pytest.mark.parametrize("seconds", ["9" * 400, "-" + "9" * 400])
async def test_a_token_that_lasts_for_ever_has_an_end(seconds: str) -> None:
    body = b'{"access_token": "new", "token_type": "Bearer", "expires_in": %s}' % seconds.encode()
    with recording_requests(200, body) as (address, _):
        login = await OAuthServers(clock=lambda: 0.0).refresh(_make_login(f"{address}/token"))
    assert login.expires_at is not None
    assert 0 <= login.expires_at < 4e8


def _make_login(token_endpoint: str) -> Login:
    resource = "http://127.0.0.1/mcp"
    return Login("1", "https://a.example", resource, "me", token_endpoint, "the-access-token", "the-refresh-token")
