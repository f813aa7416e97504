"""Log lines: JSON for machines, plain for people, nothing on standard output."""

from __future__ import annotations

import io
import json
import logging

import pytest

from tests.fixtures.requests import as_request
from toolscript.domain.redaction import redact_secrets
from toolscript.surfaces.logs import JsonLines, PlainLines

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJ0ZW5hbnRfaWQiOiJhY21lIn0.c2lnbmF0dXJl"


@pytest.mark.req("D-10")
def test_an_event_is_one_line_of_json_with_its_fields(lines: io.StringIO) -> None:
    log = logging.getLogger("toolscript.somewhere")
    log.debug("too_quiet")
    log.warning("model_fallback", extra={"wanted": "größer", "used": None})
    line = json.loads(lines.getvalue())
    assert (line["event"], line["level"], line["wanted"], line["used"]) == ("model_fallback", "warning", "größer", None)
    assert line["time"].endswith("+00:00")


@pytest.mark.req("D-10")
def test_an_exception_stays_on_its_line(lines: io.StringIO) -> None:
    try:
        int("boom")
    except ValueError:
        logging.getLogger("toolscript.somewhere").exception("failed")
    (line,) = lines.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]


def test_a_line_on_a_terminal_is_readable() -> None:
    record = logging.makeLogRecord({"msg": "model_fallback", "levelname": "WARNING", "used": "small"})
    assert PlainLines().format(record) == "warning: model fallback  used: small"


def test_a_line_on_a_terminal_does_not_control_it() -> None:
    text = "1.0\x1b]0;owned\x07\x1b[2J\nerror: forged\u202e"
    record = logging.makeLogRecord(
        {
            "msg": text,
            "levelname": "WARNING",
            "entry": text,
            "deep": [text],
            "exc_info": (ValueError, ValueError(text), None),
        }
    )
    first, *others = PlainLines().format(record).split("\n")
    assert "entry: 1.0\\x1b]0;owned\\x07\\x1b[2J\\nerror: forged\\u202e" in first
    assert all(line.isprintable() for line in (first, *others))


@pytest.mark.req("D-10")
def test_a_line_names_the_request_that_it_belongs_to(lines: io.StringIO) -> None:
    log = logging.getLogger("toolscript.somewhere")
    with as_request(request_id="one-of-many"):
        log.warning("during")
    log.warning("after")
    during, after = map(json.loads, lines.getvalue().splitlines())
    assert (during["request_id"], "request_id" in after) == ("one-of-many", False)


@pytest.mark.req("D-10")
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer s3cr3t.of-us", "s3cr3t"),
        ("authorization:Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("{'Authorization': 'Bearer s3cr3t'}", "s3cr3t"),
        ('{"api_key": "two words"}', "words"),
        ("refused Bearer s3cr3t for reasons", "s3cr3t"),
        ("X-Api-Key: s3cr3t", "s3cr3t"),
        ("Set-Cookie: session=s3cr3t", "s3cr3t"),
        ("postgresql://me:p@ss:w0rd@db.example/name is down", "w0rd"),
        ("https://s3cr3t@example.org/", "s3cr3t"),
        ("GET https://example.org/in?x=1&token=s3cr3t&y=2 failed", "s3cr3t"),
        ("https://example.org/in?api_key=s3cr3t#part", "s3cr3t"),
        ("https://example.org/in?X-Amz-Signature=s3cr3t", "s3cr3t"),
        ("password=s3cr3t", "s3cr3t"),
        ("TOOLSCRIPT_LLM_KEY='s3cr3t too'", "s3cr3t"),
        (f"the token {TOKEN} has expired", "eyJ"),
        ("key sk-abcdefghijklmnop1234 is revoked", "sk-abc"),
        ("hf_abcdefghijklmnop1234", "hf_abc"),
    ],
)
def test_secrets_are_redacted_everywhere(lines: io.StringIO, text: str, secret: str) -> None:
    log = logging.getLogger("toolscript.somewhere")
    log.warning(text)
    log.warning("message %s", text)
    log.warning("event", extra={"reason": text, "deep": {"er": [text, (text,)]}, "odd": ValueError(text)})
    log.error("failed", exc_info=ValueError(text))
    assert secret not in lines.getvalue()
    assert lines.getvalue().count("[redacted]") >= 5
    record = logging.makeLogRecord({"msg": text, "levelname": "WARNING", "reason": text})
    assert secret not in PlainLines().format(record)


@pytest.mark.req("D-10")
@pytest.mark.parametrize("name", ["authorization", "Authorization", "api_key", "llm_key", "password", "jwt_secret"])
def test_a_field_with_the_name_of_a_secret_is_redacted(lines: io.StringIO, name: str) -> None:
    logging.getLogger("toolscript.somewhere").warning("event", extra={name: "xyz", "deep": {name: ["xyz"]}})
    line = json.loads(lines.getvalue())
    assert (line[name], line["deep"][name]) == ("[redacted]", "[redacted]")


@pytest.mark.parametrize(
    "text",
    [
        "the bearer token has expired",
        "check TOOLSCRIPT_RERANKER_KEY: it is refused",
        "TOOLSCRIPT_LLM_URL is set and TOOLSCRIPT_LLM_MODEL is not",
        "http://127.0.0.1:6333/collections?limit=10 is down",
        "prompt_tokens: 12, keyword: fish",
        "basic search by words only",
        "mail to someone@example.org",
    ],
)
def test_other_text_stays_unchanged(text: str) -> None:
    assert redact_secrets(text) == text


def test_numbers_stay_numbers() -> None:
    record = logging.makeLogRecord({"msg": "spent", "prompt_tokens": 12, "token": 3, "ok": True, "none": None})
    line = json.loads(JsonLines().format(record))
    assert (line["prompt_tokens"], line["token"], line["ok"], line["none"]) == (12, 3, True, None)


@pytest.mark.req("D-10")
def test_lines_of_the_span_exporter_are_logged(lines: io.StringIO) -> None:
    theirs = logging.getLogger("opentelemetry.exporter")
    theirs.info("all is well")
    theirs.error("Failed to export spans to https://me:s3cr3t@collector/")
    (line,) = lines.getvalue().splitlines()
    assert json.loads(line)["event"] == "Failed to export spans to https://[redacted]@collector/"
