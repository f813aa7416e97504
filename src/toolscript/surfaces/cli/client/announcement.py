"""The file that announces a gateway in its data folder, so that commands on the same folder use it instead of opening
the folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from toolscript.configuration.data_files import replace_file
from toolscript.settings import Settings, describe_values

FILE = "gateway.json"
# Of Windows.
QUERY_LIMITED_INFORMATION, ACCESS_DENIED, STILL_ACTIVE = 0x1000, 5, 259


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a gateway states about itself. Only the owner of the folder can read it."""

    url: str
    pid: int
    config: str | None
    """The file that the gateway reads; None for the default files."""
    key: str | None
    """Signs the tokens of the owner's commands."""
    started_at: str
    settings: Mapping[str, str]
    """The values that are not the defaults, by variable; digests of those that are secret."""
    process_start: str | None
    """When the process started: another process may get its id later. None where the system does not say."""

    def describe(self) -> str:
        """`http://127.0.0.1:3780 (process 4711, since 2026-11-16 20:01:59)`, in local time."""
        return f"{self.url} (process {self.pid}, since {format_time(self.started_at)})"


@contextmanager
def announce_gateway(settings: Settings, url: str, *, key: str | None = None) -> Iterator[None]:
    """Writes the file, and removes it at the end of the block."""
    note = settings.data / FILE
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    announcement = Announcement(
        url,
        os.getpid(),
        make_absolute(settings.config),
        key,
        datetime.now(UTC).isoformat(timespec="seconds"),
        describe_values(settings, salt=key or ""),
        find_process_start(os.getpid()),
    )
    text = json.dumps(asdict(announcement))
    replace_file(note, text)
    try:
        yield
    finally:
        with suppress(OSError):
            if note.read_text(encoding="utf-8") == text:
                note.unlink()


def read_announcement(data: Path) -> Announcement | None:
    """The announcement on that folder; None when its process has ended: another program may have its port or its
    process id by now, and must not get our key or our signals."""
    try:
        note = json.loads((data / FILE).read_text(encoding="utf-8"))
        known = {each.name: note[each.name] for each in fields(Announcement)}
        is_valid = isinstance(known["url"], str) and isinstance(known["pid"], int) and known["pid"] > 0
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if not is_valid or not is_alive(known["pid"]):
        return None
    announced = Announcement(**known)
    found = find_process_start(announced.pid) if announced.process_start else None
    return announced if found in {None, announced.process_start} else None


def is_alive(pid: int) -> bool:
    """Whether a process runs. A process that has ended does not run, even if its parent has not noticed yet."""
    if sys.platform == "win32":
        return _is_alive_on_windows(pid)
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(") ")[2][:1]
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to another user, or there is no /proc
        return True
    return state != "Z"


def _is_alive_on_windows(pid: int) -> bool:
    """Asks for the exit code: `os.kill` would end the process."""
    import ctypes

    kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]  # only on Windows
    handle = kernel.OpenProcess(QUERY_LIMITED_INFORMATION, False, pid)
    if not handle:
        return bool(kernel.GetLastError() == ACCESS_DENIED)  # it belongs to another user
    code = ctypes.c_ulong()
    is_known = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.CloseHandle(handle)
    return not is_known or code.value == STILL_ACTIVE


def find_process_start(pid: int) -> str | None:
    """When a process started, as text to compare; None where the system does not say."""
    if sys.platform == "win32":
        return None
    try:
        if Path("/proc/self/stat").exists():  # in ticks since the system started: the clock may be set meanwhile
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
            fields_after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
            return f"{boot} {int(fields_after_name[19])}"
        command = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
        environment = {"LC_ALL": "C", "TZ": "UTC"}
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
        return shown.stdout.strip() or None
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return None


def make_absolute(config: Path | None) -> str | None:
    return str(config.expanduser().absolute()) if config else None


def format_time(text: str) -> str:
    """A time in ISO format as local date and time."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text
