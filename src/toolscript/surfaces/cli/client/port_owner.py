"""Finds out who listens on a port, for the error message when the gateway cannot."""

from __future__ import annotations

import urllib.request
from datetime import UTC, datetime
from pathlib import Path

from toolscript.domain.limits import current_limits
from toolscript.surfaces.cli.client.announcement import format_time

_LISTENING = "0A"


def describe_port_owner(host: str, port: int) -> str | None:
    """`A Toolscript gateway listens there: process 4711, since …`; None when nothing is known. The process is known on
    Linux, and if it belongs to the same user."""
    pid = _find_listener(port)
    what = "A Toolscript gateway" if _is_gateway(host, port) else "Another program"
    if pid is None:
        return f"{what} listens there" if what != "Another program" else None
    started = datetime.fromtimestamp(Path(f"/proc/{pid}").stat().st_ctime, UTC).isoformat(timespec="seconds")
    return f"{what} listens there: process {pid}, since {format_time(started)}"


def _is_gateway(host: str, port: int) -> bool:
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    url = f"http://[{local}]:{port}/health" if ":" in local else f"http://{local}:{port}/health"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=current_limits().port_owner) as response:
            return bool(response.read(100).replace(b" ", b"").startswith(b'{"status":"ok"'))
    except (OSError, ValueError):
        return False


def _find_listener(port: int) -> int | None:
    """The id of the process that listens on a port of this machine."""
    sockets = set()
    try:
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{columns[9]}]")
    except OSError:  # not Linux
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(each.readlink()) in sockets for each in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:  # it has ended, or belongs to another user
            continue
    return None
