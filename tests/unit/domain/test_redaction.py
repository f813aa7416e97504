"""What the audit keeps of arguments: no secret, by its name or by its looks, and no more than a part of a long text."""

from __future__ import annotations

import json
import random
import string
import time
from typing import Any

import pytest

from toolscript.domain.redaction import (
    MAX_CHARACTERS,
    REDACTED,
    list_proxy_secrets,
    redact_arguments,
    redact_secrets,
    redact_text,
)
from toolscript.services.support.search_events import describe_arguments, measure_json

pytestmark = pytest.mark.req("G-16")

SECRET = "correct horse"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "password", "db_password", "passwd", "pwd", "passphrase", "pass", "pin", "otp", "secret", "client_secret",
        "clientSecret", "secrets", "token", "accessToken", "refresh-token", "tokens", "api_key", "apiKey", "APIKEY",
        "x-api-key", "privateKey", "secretAccessKey", "signing_key", "authorization", "auth", "cookie", "Set-Cookie",
        "credentials", "jwt", "bearer", "cvv",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [SECRET, 271828, [SECRET], {"value": SECRET}])
def test_what_has_the_name_of_a_secret_is_redacted_whatever_it_holds(name: str, value: Any) -> None:
    if name == "tokens" and value == 271828:
        assert redact_arguments({"max_tokens": value}) == {"max_tokens": value}
        return
    assert redact_arguments({"outer": [{name: value, "kept": 1}]}) == {"outer": [{name: REDACTED, "kept": 1}]}


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_abcdefghijklmnopqrst",
        "sk-abcdefghijklmnopqrstuvwx",
        "tsk_abcdefghijklmnopqrstuvwx",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJ0ZW5hbnRfaWQiOiJhY21lIn0.c2lnbmF0dXJl",
        "wJalrXUtnFEMI7K7MDENG7bPxRfiCYEXAMPLEKEY",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAK\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_is_redacted_wherever_it_is(secret: str) -> None:
    for value in (secret, f"use {secret} please", [f"x={secret}"], {secret: 1}):
        assert secret not in json.dumps(redact_arguments({"text": value}))
        assert secret.splitlines()[-1] not in json.dumps(redact_arguments({"text": value}))


@pytest.mark.req("X-12")
@pytest.mark.parametrize("before", [0, 500, *range(MAX_CHARACTERS - 10, MAX_CHARACTERS + 330, 10)])
def test_a_known_secret_is_redacted_wherever_a_text_is_cut(before: int) -> None:
    secrets = ["pass phrase " * 20, "short one"]
    for secret in secrets:
        redacted = redact_text("x " * (before // 2) + secret + " y" * 2000, secrets)
        assert "phrase" not in redacted
        assert "short" not in redacted
        assert len(redacted) < MAX_CHARACTERS + 100


def test_ordinary_values_stay() -> None:
    ordinary = {
        "path": "/home/Ann/Project1/src/main/java/com/Example2/Main.java",
        "commit": "0af7651916cd43dd8448eb211c80319c0af76519",
        "id": "7f9c24e8-3b12-4fef-91a2-5d3c0a1b2c3d",
        "key": "name",
        "query": "SELECT id FROM users WHERE name = 'Ann' AND created > '2026-01-01'",
        "numbers": [1, 2.5, None, True],
        "monkeys": {"count": 3},
    }
    assert redact_arguments(ordinary) == ordinary


@pytest.mark.slow
def test_a_long_text_is_cut_and_a_secret_at_any_place_of_it_is_not_left_in_part() -> None:
    secret = "sk-" + "abcdefgh" * 8
    for place in range(0, 1300, 3):
        text = redact_text("x " * (place // 2) + secret + " y" * 2000)
        assert len(text) < MAX_CHARACTERS + 100
        assert "sk-" not in text, place


@pytest.mark.slow
def test_arguments_of_any_depth_and_size_are_described_in_bounded_time() -> None:
    deep: Any = "a"
    for _ in range(900):
        deep = [deep]
    characters = string.ascii_letters + string.digits + "-_ =:'\""
    long = "".join(random.Random(7).choices(characters, k=1_000_000))
    for arguments in ({"deep": deep}, {"long": long}, {"many": ["a" * 40] * 20_000}):
        started = time.thread_time()
        assert len(describe_arguments(arguments, as_digest=False)) <= 4001
        assert describe_arguments(arguments, as_digest=True).startswith("sha256:")
        assert time.thread_time() - started < 5


def test_digests_say_whether_arguments_are_the_same_but_not_which_secret_they_have() -> None:
    def digest(arguments: Any) -> str:
        return describe_arguments(arguments, as_digest=True)

    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
    assert digest({"pin": "1234"}) == digest({"pin": "9999"})
    assert digest({"text": "x" * 5000}) != digest({"text": "x" * 4999 + "y"})


@pytest.mark.parametrize("value", [{}, [], "a", "ü😀", 1, 2.5, True, False, None, {"a": [1, "b", {}], "c": [[], ""]}])
def test_the_size_of_a_result_is_that_of_its_json(value: Any) -> None:
    assert measure_json(value) == len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


@pytest.mark.slow
def test_text_that_could_be_many_tokens_is_read_in_little_time() -> None:
    start = time.thread_time()
    redact_secrets("eyJaaaaaa-" * 20_000)
    assert time.thread_time() - start < 10


def test_the_password_of_a_proxy_is_a_secret_in_every_form() -> None:
    environment = {"https_proxy": "http://joe:p%40ss@proxy:3128", "NO_PROXY": "a.example.com", "X": "a:b@c"}
    secrets = list_proxy_secrets(environment)
    assert secrets == ["p%40ss", "p@ss", "joe:p%40ss@", "joe:p@ss@", "am9lOnBAc3M="]
    assert list_proxy_secrets({"ALL_PROXY": "joe:pass@proxy:3128"})[0] == "pass"
    assert list_proxy_secrets({"PIP_PROXY": "http://joe@proxy", "HTTP_PROXY": "http://proxy:3128"}) == []
