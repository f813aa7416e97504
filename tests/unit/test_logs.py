"""Log lines: JSON for machines, plain for people, nothing on standard output."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from toolscript.surfaces.logs import PlainLines, write_logs


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    written = io.StringIO()
    ours = logging.getLogger("toolscript")
    before = (ours.handlers, ours.propagate, ours.level)
    monkeypatch.setattr("sys.stderr", written)
    write_logs("info")
    yield written
    ours.handlers, ours.propagate = before[0], before[1]
    ours.setLevel(before[2])


@pytest.mark.req("D-10")
def test_an_event_is_one_line_of_json_with_what_it_brought(lines: io.StringIO) -> None:
    log = logging.getLogger("toolscript.somewhere")
    log.debug("too_quiet")
    log.warning("model_fallback", extra={"wanted": "größer", "used": None})
    told = json.loads(lines.getvalue())
    assert (told["event"], told["level"], told["wanted"], told["used"]) == ("model_fallback", "warning", "größer", None)
    assert told["time"].endswith("+00:00")


@pytest.mark.req("D-10")
def test_an_exception_stays_on_its_line(lines: io.StringIO) -> None:
    try:
        int("boom")
    except ValueError:
        logging.getLogger("toolscript.somewhere").exception("failed")
    (line,) = lines.getvalue().splitlines()
    assert "ValueError: invalid literal" in json.loads(line)["exception"]


def test_on_a_terminal_a_line_reads_like_a_sentence() -> None:
    record = logging.makeLogRecord({"msg": "model_fallback", "levelname": "WARNING", "used": "small"})
    assert PlainLines().format(record) == "warning: model fallback  used: small"
