"""An MCP server that tries to get out of its sandbox, with one tool: its arguments name the attempt and the aim.

It is run as a script with the standard library alone. No attempt does harm where nothing stops it: signals have the
number 0, files of the kernel are opened and not written, and mounts go to the named folder.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

TIMEOUT_SECONDS = 5
PTRACE_ATTACH, PTRACE_DETACH, CLONE_NEWUSER, MS_REMOUNT, MS_BIND = 16, 17, 0x10000000, 32, 4096
MAX_LIFE_SECONDS = 600


def read(path: str) -> str:
    """Reads a file, or lists a folder."""
    return str(os.listdir(path)) if os.path.isdir(path) else Path(path).read_text(encoding="utf-8", errors="replace")  # noqa: PTH112, PTH208


def write(path: str) -> str:
    """Writes a file that is not there yet."""
    Path(path).write_text("written", encoding="utf-8")
    return path


def open_for_writing(path: str) -> str:
    """Opens a file for writing, and leaves it as it is."""
    os.close(os.open(path, os.O_WRONLY))
    return path


def connect(address: str) -> str:
    """Connects to `host:port`, to a path, or to a name without a path (`@name`)."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET if port.isdigit() and host else socket.AF_UNIX
    with socket.socket(family) as client:
        client.settimeout(TIMEOUT_SECONDS)
        client.connect((host, int(port)) if family == socket.AF_INET else address.replace("@", "\0", 1))
    return address


def send_signal(pid: str) -> str:
    """Asks whether a process could be signalled."""
    os.kill(int(pid), 0)
    return pid


def trace(pid: str) -> str:
    """Attaches to a process as a debugger."""
    call_system("ptrace", PTRACE_ATTACH, int(pid), None, None)
    os.waitpid(int(pid), 0)
    call_system("ptrace", PTRACE_DETACH, int(pid), None, None)
    return pid


def see(pid: str) -> str:
    """Looks for a process in the list of processes."""
    if pid not in os.listdir("/proc"):  # noqa: PTH208
        raise OSError(f"only {len([each for each in os.listdir('/proc') if each.isdigit()])} processes")  # noqa: PTH208
    return pid


def mount(folder: str) -> str:
    """Mounts a file system."""
    call_system("mount", b"none", folder.encode(), b"tmpfs", 0, None)
    call_system("umount", folder.encode())
    return folder


def remount(folder: str) -> str:
    """Makes a mount writable."""
    call_system("mount", b"none", folder.encode(), None, MS_REMOUNT | MS_BIND, None)
    return folder


def make_namespace(_: str) -> str:
    """Becomes root of a user namespace of its own."""
    call_system("unshare", CLONE_NEWUSER)
    return "unshared"


def make_device(path: str) -> str:
    """Makes a block device."""
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(254, 0))
    Path(path).unlink()
    return path


def link(target_and_path: str) -> str:
    """Makes a link, and reads what is behind it."""
    target, _, path = target_and_path.partition(" ")
    Path(path).unlink(missing_ok=True)
    Path(path).symlink_to(target)
    return read(path)


def leave_a_daemon(path: str) -> str:
    """Starts a process in a session of its own that ignores SIGTERM and writes to a file until it is killed."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            end = time.monotonic() + MAX_LIFE_SECONDS
            while time.monotonic() < end:
                Path(path).write_text(str(time.monotonic()), encoding="utf-8")
                time.sleep(0.05)
        os._exit(0)
    return path


ATTEMPTS: dict[str, Callable[[str], str]] = {
    each.__name__: each
    for each in (
        *(read, write, open_for_writing, connect, send_signal, trace, see),
        *(mount, remount, make_namespace, make_device, link, leave_a_daemon),
    )
}


def call_system(name: str, *arguments: object) -> None:
    """Calls a function of the C library. Raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main() -> None:
    """Serves until the input ends."""
    schema = {"type": "object", "properties": {"attempt": {"type": "string"}, "aim": {"type": "string"}}}
    tool = {"name": "escape", "description": "Tries to get out.", "inputSchema": schema}
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params", {})
        match message["method"]:
            case "initialize":
                about = {"name": "hostile", "version": "1.0.0"}
                version = params["protocolVersion"]
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
            case "tools/list":
                result = {"tools": [tool]}
            case "tools/call":
                given = params["arguments"]
                try:
                    outcome = {"escaped": True, "text": ATTEMPTS[given["attempt"]](given.get("aim", ""))}
                except OSError as error:
                    outcome = {"escaped": False, "text": str(error)}
                result = {"content": [], "structuredContent": outcome}
            case _:
                result = {}
        if "id" in message:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
