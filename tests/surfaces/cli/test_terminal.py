"""What others wrote cannot take over the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from toolscript.domain.servers import ServerState, ServerStatus, Transport
from toolscript.surfaces.cli.terminal.server_board import Board
from toolscript.surfaces.cli.terminal.text import marked, printable

pytestmark = pytest.mark.req("X-04", "G-09")


@pytest.mark.parametrize("text", ["\x1b]0;title\x07", "\x1b[2J", "a\u202eb", "\x00", "\x9b31m", "\r\n\t"])
def test_no_control_character_is_left(text: str) -> None:
    assert printable(text).isprintable()


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Grüße, 世界: [bold] {x} → 'y'"
    assert printable(text) == text


@pytest.mark.parametrize("text", ["[/usr/lib/node] not found", "[red]x[/]", "[[["])
def test_markup_is_shown_and_not_obeyed(text: str) -> None:
    shown = io.StringIO()
    Console(file=shown, width=100).print(marked(text))
    assert shown.getvalue() == f"{text}\n"


def status(state: ServerState, reason: str | None = None) -> ServerStatus:
    return ServerStatus("s[1]", Transport.STDIO, state, reason, items={"tool": 2} if state == "ready" else {})


@pytest.mark.req("G-02")
def test_away_from_a_terminal_every_news_of_a_server_is_a_line() -> None:
    shown = io.StringIO()
    board = Board(Console(file=shown, width=100))
    with board.shown():
        for told in (
            status(ServerState.CONNECTING),
            status(ServerState.FAILED, "[/x] is gone"),
            status(ServerState.CONNECTING, "[/x] is gone"),
            status(ServerState.FAILED, "[/x] is gone"),
            status(ServerState.READY),
            status(ServerState.FAILED, "it died"),
        ):
            board.update(told)
    assert shown.getvalue().splitlines() == [
        "failed  s[1]  [/x] is gone",
        "ready  s[1]  2 tools",
        "failed  s[1]  it died",
    ]


@pytest.mark.req("G-02")
def test_on_a_terminal_a_table_is_kept_current_and_later_news_are_lines() -> None:
    shown = io.StringIO()
    board = Board(Console(file=shown, width=100, force_terminal=True, color_system=None))
    with board.shown():
        board.update(status(ServerState.CONNECTING))
        board.update(status(ServerState.READY))
    board.update(status(ServerState.READY))
    before = shown.getvalue()
    assert "2 tools" in before
    board.update(status(ServerState.FAILED, "it died"))
    assert shown.getvalue().removeprefix(before) == "failed  s[1]  it died\n"
