"""Text of servers cannot control the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from toolscript.domain.servers import ServerState, ServerStatus, Transport
from toolscript.surfaces.cli.terminal.progress import JobProgress
from toolscript.surfaces.cli.terminal.server_board import Board
from toolscript.surfaces.cli.terminal.text import escape_markup, printable

pytestmark = pytest.mark.req("X-04", "G-09")


@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "\x1b[2J", "a\u202eb", "\x00", "\x9b31m", "\r\n\t"])
def test_no_control_character_is_left(text: str) -> None:
    assert printable(text).isprintable()


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Grüße, 世界: [bold] {x} → 'y'"
    assert printable(text) == text


@pytest.mark.parametrize("text", ["[/usr/lib/node] not found", "[red]x[/]", "[[["])
def test_markup_is_printed_as_text(text: str) -> None:
    output = io.StringIO()
    Console(file=output, width=100).print(escape_markup(text))
    assert output.getvalue() == f"{text}\n"


def status(state: ServerState, reason: str | None = None) -> ServerStatus:
    return ServerStatus("s[1]", Transport.STDIO, state, reason, items={"tool": 2} if state == "ready" else {})


@pytest.mark.req("G-02")
def test_without_a_terminal_every_change_of_a_server_is_a_line() -> None:
    output = io.StringIO()
    board = Board(Console(file=output, width=100))
    with board.show():
        for each in (
            status(ServerState.CONNECTING),
            status(ServerState.FAILED, "[/x] is gone"),
            status(ServerState.CONNECTING, "[/x] is gone"),
            status(ServerState.FAILED, "[/x] is gone"),
            status(ServerState.READY),
            status(ServerState.FAILED, "it died"),
        ):
            board.update(each)
    assert output.getvalue().splitlines() == [
        "failed  s[1]  [/x] is gone",
        "ready  s[1]  2 tools",
        "failed  s[1]  it died",
    ]


@pytest.mark.req("G-02")
def test_changes_that_are_logged_are_not_printed_as_well() -> None:
    output = io.StringIO()
    board = Board(Console(file=output, width=100), logged=[ServerState.FAILED])
    for each in (status(ServerState.FAILED, "it died"), status(ServerState.READY), status(ServerState.FAILED)):
        board.update(each)
    assert output.getvalue() == "ready  s[1]  2 tools\n"


@pytest.mark.req("G-02")
def test_in_a_terminal_a_table_is_updated_and_later_changes_are_lines() -> None:
    output = io.StringIO()
    board = Board(Console(file=output, width=100, force_terminal=True, color_system=None))
    with board.show():
        board.update(status(ServerState.CONNECTING))
        board.update(status(ServerState.READY))
    board.update(status(ServerState.READY))
    before = output.getvalue()
    assert "2 tools" in before
    board.update(status(ServerState.FAILED, "it died"))
    assert output.getvalue().removeprefix(before) == "failed  s[1]  it died\n"


@pytest.mark.req("F-02")
def test_a_job_says_its_rate_by_the_minute_and_what_is_left_without_files_that_had_not_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    show = JobProgress(Progress(disable=True), clock=lambda: now)
    job = {
        "files": {"total": 300, "done": 200, "waiting": 97, "running": 3},
        "bytes": 9_000_000,
        "bytes_done": 6_000_000,
    }
    show(job, [])
    now = 60.0
    book = {"number": 7, "name": "book.md", "bytes": 1_000_000, "steps_done": 5, "steps": 10}
    show(job | {"files": {"total": 300, "done": 224, "waiting": 75, "running": 1}, "bytes_done": 6_500_000}, [book])
    line = "224 of 300 files, 24 a minute, 76 left (2.0 MB), about 2 min"
    assert capsys.readouterr().err.splitlines() == [line]
