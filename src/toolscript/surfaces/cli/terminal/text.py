"""The terminal's side of a command: what others wrote is made fit for it (their texts may hold commands to it, or
markup of ours), and what it tells a running command is heard."""

from __future__ import annotations

from collections.abc import Callable


def when_told_to_stop(stop: Callable[[], object]) -> None:
    """Calls `stop` on SIGINT and SIGTERM, from inside the running loop.

    Windows' loops take no handlers of signals: there Ctrl-C interrupts the command as it does any other, and it ends
    through its `finally` blocks.
    """
    import asyncio
    import signal
    import sys

    if sys.platform != "win32":
        for told in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(told, stop)


def printable(text: str) -> str:
    """The text without control characters; a line end becomes a space."""
    return "".join(c if c.isprintable() or c == "\u00a0" else " " if c in "\n\r\t" else "\ufffd" for c in text)


def marked(text: str) -> str:
    """The same, with nothing in it that rich would take for markup."""
    from rich.markup import escape

    return escape(printable(text))
