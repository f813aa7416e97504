"""How the servers come up, while they do: a table that moves in a terminal, a line each elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolscript.domain.servers import ServerState, ServerStatus
from toolscript.surfaces.cli.terminal.text import marked

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

COLOURS = {ServerState.READY: "green", ServerState.CONNECTING: "yellow", ServerState.FAILED: "red"}


class Board:
    """Shows every server's newest status."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: dict[str, ServerStatus] = {}
        self._told: dict[str, ServerState] = {}
        self._live = False

    def update(self, status: ServerStatus) -> None:
        """Takes in a status; away from a terminal, prints what is news."""
        self._seen[status.name] = status
        is_news = status.state not in {ServerState.CONNECTING, self._told.get(status.name)}
        if not self._live and is_news:
            self._told[status.name] = status.state
            self._console.print(_line(status))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keeps the table on the terminal for as long as the block lasts, and leaves its last state there."""
        if not self._console.is_terminal:
            yield
            return
        from rich.live import Live

        self._live = True
        with Live(get_renderable=self._table, console=self._console, refresh_per_second=8):
            yield
        self._live = False
        self._told = {s.name: s.state for s in self._seen.values()}

    def _table(self) -> Table:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        for _ in range(3):
            table.add_column(overflow="fold")
        for name in sorted(self._seen):
            status = self._seen[name]
            table.add_row(f"[{COLOURS[status.state]}]{status.state}[/]", marked(name), _about(status))
        return table


def _line(status: ServerStatus) -> str:
    return f"[{COLOURS[status.state]}]{status.state}[/]  {marked(status.name)}  {_about(status)}"


def _about(status: ServerStatus) -> str:
    counts = [f"{n} {kind}{'s' if n != 1 else ''}" for kind, n in sorted(status.items.items(), reverse=True)]
    return marked("; ".join([*filter(None, [", ".join(counts), status.reason]), *status.problems]))
