"""Page tokens: signed, bound to tenant and query, expiring."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.clock import Clock
from tests.fixtures.examples import scale_examples
from toolscript.domain.errors import Invalid
from toolscript.services.documents.page_tokens import PageTokens

pytestmark = pytest.mark.req("D-12")

SECRET = b"a secret of at least some length"
texts = st.text(st.characters(exclude_categories=[]), max_size=40)


@settings(max_examples=scale_examples(150), deadline=None)
@given(tenant=texts, question=texts, offset=st.integers(0, 10_000))
def test_a_token_contains_its_offset(tenant: str, question: str, offset: int) -> None:
    tokens = PageTokens(SECRET)
    assert tokens.read(tokens.issue(tenant, question, offset), tenant, question) == offset


@settings(max_examples=scale_examples(150), deadline=None)
@given(ours=st.tuples(texts, texts), theirs=st.tuples(texts, texts))
def test_a_token_is_valid_for_one_query_of_one_tenant(ours: tuple[str, str], theirs: tuple[str, str]) -> None:
    tokens = PageTokens(SECRET)
    token = tokens.issue(*ours, 10)
    if ours == theirs:
        assert tokens.read(token, *theirs) == 10
    else:
        with pytest.raises(Invalid, match="page token cannot be used"):
            tokens.read(token, *theirs)


@settings(max_examples=scale_examples(150), deadline=None)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_token_with_any_bit_changed_is_refused(place: int, bit: int) -> None:
    tokens = PageTokens(SECRET)
    token = tokens.issue("acme", "red wine", 20)
    raw = bytearray(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    raw[place % len(raw)] ^= 1 << bit
    with pytest.raises(Invalid, match="not one that this service has given to you"):
        tokens.read(urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode(), "acme", "red wine")


@settings(max_examples=scale_examples(150), deadline=None)
@given(token=texts)
def test_malformed_tokens_are_refused(token: str) -> None:
    with pytest.raises(Invalid, match="page token cannot be used"):
        PageTokens(SECRET).read(token, "acme", "red wine")


@pytest.mark.parametrize("spelling", ["{}=", "{}==", " {}", "{}\n", "{}A", "!{}"])
def test_another_encoding_of_a_token_is_refused(spelling: str) -> None:
    tokens = PageTokens(SECRET)
    with pytest.raises(Invalid):
        tokens.read(spelling.format(tokens.issue("acme", "red wine", 20)), "acme", "red wine")


def test_a_token_expires() -> None:
    clock = Clock()
    tokens = PageTokens(SECRET, lasting_seconds=60, clock=clock)
    token = tokens.issue("acme", "red wine", 20)
    clock.now += 59
    assert tokens.read(token, "acme", "red wine") == 20
    clock.now += 1
    with pytest.raises(Invalid, match="expired"):
        tokens.read(token, "acme", "red wine")


def test_a_token_of_another_secret_is_refused_and_one_of_the_same_secret_is_read() -> None:
    token = PageTokens(SECRET).issue("acme", "red wine", 20)
    assert PageTokens(SECRET).read(token, "acme", "red wine") == 20
    with pytest.raises(Invalid, match="not one that"):
        PageTokens(b"another secret").read(token, "acme", "red wine")


def test_another_tenants_token_is_refused_like_a_forged_one() -> None:
    tokens = PageTokens(SECRET)
    response = []
    for token in (tokens.issue("globex", "red wine", 20), "never"):
        with pytest.raises(Invalid) as refused:
            tokens.read(token, "acme", "red wine")
        response.append(refused.value.to_envelope())
    assert response[0] == response[1]


def test_a_token_reveals_neither_tenant_nor_query() -> None:
    token = PageTokens(SECRET).issue("acme-corporation", "red wine", 20)
    raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert b"acme" not in raw
    assert b"wine" not in raw


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(Invalid, match="secret"):
        PageTokens(b"")
