"""The states of servers while they connect: a live table in a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolscript.domain.servers import ServerState, ServerStatus
from toolscript.surfaces.cli.terminal.text import escape_markup

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

COLOURS = {
    ServerState.READY: "green",
    ServerState.CONNECTING: "yellow",
    ServerState.FAILED: "red",
    ServerState.ASLEEP: "blue",
    ServerState.STOPPED: "blue",
}


class Board:
    """Shows the latest status of every server."""

    def __init__(self, console: Console, *, logged: Sequence[ServerState] = ()) -> None:
        """Without a live table, the states that are `logged` are not printed, too."""
        self._console = console
        self._logged = frozenset(logged)
        self._statuses: dict[str, ServerStatus] = {}
        self._printed: dict[str, ServerState] = {}
        self._live = False

    def update(self, status: ServerStatus) -> None:
        """Records a status; without a live table, prints it when the state has changed."""
        self._statuses[status.name] = status
        has_changed = status.state not in {ServerState.CONNECTING, self._printed.get(status.name)}
        if not self._live and has_changed:
            self._printed[status.name] = status.state
            if status.state in self._logged:
                return
            self._console.print("  ".join(_format_cells(status)))

    @contextmanager
    def show(self) -> Iterator[None]:
        """Shows the table in a terminal during the block, and leaves its last state there."""
        if not self._console.is_terminal:
            yield
            return
        from rich.live import Live

        self._live = True
        with Live(get_renderable=self._table, console=self._console, refresh_per_second=8):
            yield
        self._live = False
        self._printed = {s.name: s.state for s in self._statuses.values()}

    def _table(self) -> Table:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, show_header=False)
        for _ in range(3):
            table.add_column(overflow="fold")
        for name in sorted(self._statuses):
            table.add_row(*_format_cells(self._statuses[name]))
        return table


def _format_cells(status: ServerStatus) -> tuple[str, str, str]:
    counts = [f"{n} {kind}{'s' if n != 1 else ''}" for kind, n in sorted(status.items.items(), reverse=True)]
    details = "; ".join([*filter(None, [", ".join(counts), status.reason]), *status.problems])
    return f"[{COLOURS[status.state]}]{status.state}[/]", escape_markup(status.name), escape_markup(details)
