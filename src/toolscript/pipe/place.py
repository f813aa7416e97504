"""Where a pipe finds the gateway of its data folder, and how it starts one."""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from toolscript.pipe.early_answers import FOLDER

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Paths of sockets may have 104 bytes on macOS, and 108 on Linux.
MAX_SOCKET_PATH = 100
MAX_LOG_BYTES = 2**20
MAX_REASON_BYTES = 8192
OPTIONS = {
    "--config": "TOOLSCRIPT_CONFIG",
    "--model": "TOOLSCRIPT_SEARCH_MODEL",
    "--data-dir": "TOOLSCRIPT_DATA_DIR",
    "--gateway": "TOOLSCRIPT_GATEWAY_URL",
    "--profile": "TOOLSCRIPT_PROFILE",
    "--linger": "",
}
# The name of the files of the gateway in its data folder.
GATEWAY = "gateway"
# Windows has neither Python's Unix sockets nor fork.
HAS_PIPES = sys.platform != "win32"
# Says that the process is to be the gateway itself, and not a pipe to it.
SERVE = "--serve"


def parse_arguments(arguments: Sequence[str]) -> dict[str, str] | None:
    """The variables that the options stand for; None when some argument is not an option with a value."""
    variables: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        flag, is_joined, value = rest.pop(0).partition("=")
        if flag not in OPTIONS or not (is_joined or rest):
            return None
        variables[OPTIONS[flag]] = value if is_joined else rest.pop(0)
    variables.pop("", None)  # is for the gateway alone
    return variables


class Options:
    """The options of a pipe: its data folder, and the names of the files that depend on other settings."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        variables = {name: value for name, value in environment.items() if name.startswith("TOOLSCRIPT_") and value}
        for name in ("TOOLSCRIPT_CONFIG", "TOOLSCRIPT_DATA_DIR"):
            if name in variables:
                variables[name] = os.path.abspath(os.path.expanduser(variables[name]))
        self.data = variables.pop("TOOLSCRIPT_DATA_DIR", os.path.expanduser("~/.toolscript"))
        self.profile = variables.get("TOOLSCRIPT_PROFILE", "default")
        self.tenant = variables.get("TOOLSCRIPT_TENANT", "default")
        self.config = variables.get("TOOLSCRIPT_CONFIG")
        remote = variables.get("TOOLSCRIPT_GATEWAY_URL")
        text = json.dumps(sorted(variables.items())).encode(errors="surrogatepass")
        self.digest = f"{zlib.crc32(text):08x}"
        """Of all settings: they decide what is in the lists."""
        access = f"{remote} {variables.get('TOOLSCRIPT_API_KEY')}".encode(errors="surrogatepass")
        self.name = f"remote-{zlib.crc32(access):08x}" if remote else GATEWAY
        """Of the files in the data folder that all pipes to the same gateway share."""

    @property
    def answers(self) -> str:
        """The folder of the early answers."""
        return os.path.join(self.data, FOLDER, self.digest)

    @property
    def hello(self) -> dict[str, Any]:
        """What the pipe tells the gateway first."""
        return {"profile": self.profile, "tenant": self.tenant, "config": self.config, "digest": self.digest}


def locate_socket(data: str, name: str) -> str:
    """Where the socket of a gateway is, or a link to it."""
    return os.path.join(data, f"{name}.sock")


def fits_socket(path: str) -> bool:
    """Whether a socket can have that path."""
    return len(os.fsencode(path)) < MAX_SOCKET_PATH


def lock_folder(data: str, name: str) -> int | None:
    """Takes the lock of the gateway of a data folder, or returns None when another process has it. The lock lasts until
    all copies of the descriptor are closed, also copies in other processes. Raises OSError."""
    os.makedirs(data, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(data, f"{name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform == "win32":
            msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # Windows raises the second
        os.close(lock)
        return None
    return lock


class GatewayStart:
    """A gateway that this pipe has started, in a session of its own: it goes on when the client and its processes are
    ended."""

    def __init__(self, data: str, name: str, lock: int) -> None:
        """Starts the command of this process again as the gateway. The gateway keeps the lock while it runs."""
        self._log = os.path.join(data, f"{name}.log")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        if os.path.exists(self._log) and os.path.getsize(self._log) > MAX_LOG_BYTES:
            flags |= os.O_TRUNC
        log = os.open(self._log, flags, 0o600)
        self._begin = os.fstat(log).st_size
        if os.fork() == 0:
            try:
                os.setsid()
                if os.fork() == 0:  # so that nobody has to wait for its end
                    _become_gateway(log, lock)
            finally:
                os._exit(0)
        os.wait()
        os.close(log)
        os.close(lock)

    def read_reason(self) -> str:
        """Why it has ended: its error message, or else the last lines that it wrote."""
        with open(self._log, "rb") as file:
            file.seek(self._begin)
            text = file.read(MAX_REASON_BYTES).decode(errors="replace")
        _, found, message = text.rpartition("error: ")
        lines = (message if found else text).strip().splitlines()
        return "\n".join(lines if found else lines[-3:])


def _become_gateway(log: int, lock: int) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.set_inheritable(lock, True)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], SERVE])
