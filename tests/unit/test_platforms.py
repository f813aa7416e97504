"""What Toolscript does on Windows, simulated. docs/guide/platforms.md has the table of what was run where."""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import io
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import toolscript
from toolscript.__main__ import use_unicode
from toolscript.adapters.mcp import launch, process_tree
from toolscript.domain.errors import Invalid
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.settings import load_settings
from toolscript.surfaces.cli import main
from toolscript.surfaces.cli.client import announcement, redirect
from toolscript.surfaces.http.server import listen

pytestmark = pytest.mark.req("X-01", "A-05")

# What Python for Windows lacks, of what any of our modules uses.
POSIX_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "uvloop")
POSIX_NAMES = {
    "os": ("fork", "getpgid", "getuid", "killpg", "nice", "setpriority", "setsid", "wait"),
    "select": ("poll",),
    "signal": ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPROF", "SIGTRAP", "setitimer"),
    "socket": ("AF_UNIX",),
}
IMPORT_ALL = """
import importlib, os, pkgutil, sys, types

def import_all():
    import toolscript
    names = [each.name for each in pkgutil.walk_packages(toolscript.__path__, "toolscript.")]
    for name in names:
        if name != "toolscript.__main__":
            importlib.import_module(name)
    return len(names)

import_all()  # other packages decide by the real platform
for name in [name for name in sys.modules if name.partition(".")[0] == "toolscript"]:
    del sys.modules[name]
sys.platform = "win32"
for name in POSIX_MODULES:
    sys.modules[name] = None
for name, attributes in POSIX_NAMES.items():
    for attribute in attributes:
        delattr(sys.modules[name], attribute)
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
print(import_all())
"""


@pytest.mark.slow
def test_on_windows_every_module_can_be_imported() -> None:
    code = f"POSIX_MODULES, POSIX_NAMES = {POSIX_MODULES}, {POSIX_NAMES}\n{IMPORT_ALL}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Lets the product believe that it runs on Windows."""
    monkeypatch.setattr("sys.platform", "win32")
    return monkeypatch


def make_job_modules(calls: list[Any]) -> dict[str, Any]:
    """Stand-ins for the modules of pywin32 that note what is called."""
    limits = {"BasicLimitInformation": {"LimitFlags": 0}}
    job = SimpleNamespace(
        JobObjectExtendedLimitInformation=9,
        JobObjectBasicAccountingInformation=1,
        JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE=0x2000,
        CreateJobObject=lambda *_: "job",
        QueryInformationJobObject=lambda _, kind: limits if kind == 9 else {"ActiveProcesses": 2},
        SetInformationJobObject=lambda *given: calls.append(given),
        AssignProcessToJobObject=lambda *given: calls.append(given),
        TerminateJobObject=lambda *given: calls.append(given),
    )
    api = SimpleNamespace(error=OSError, OpenProcess=lambda _rights, _inherit, pid: f"process {pid}")
    constants = SimpleNamespace(PROCESS_SET_QUOTA=0x100, PROCESS_TERMINATE=1)
    return {"win32job": job, "win32api": api, "win32con": constants}


def test_on_windows_a_server_is_ended_with_all_that_it_started(windows: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    for name, module in make_job_modules(calls).items():
        windows.setitem(sys.modules, name, module)
    tree = process_tree.open_tree(4711)
    assert calls == [("job", 9, {"BasicLimitInformation": {"LimitFlags": 0x2000}}), ("job", "process 4711")]
    tree.terminate()
    assert tree.is_running()
    tree.kill()
    assert calls[2:] == [("job", 1)]


def test_on_windows_npx_is_npx_cmd_and_variables_have_one_case(windows: pytest.MonkeyPatch) -> None:
    program = "C:\\Program Files\\nodejs\\npx.CMD"
    variables = {"PATH": "C:\\Windows", "USERPROFILE": "C:\\Users\\ann"}
    windows.setattr(launch, "get_default_environment", lambda: variables)
    windows.setattr("shutil.which", lambda name, path: program if (name, path) == ("npx", "D:\\node") else None)
    spec = ServerSpec("files", Transport.STDIO, command="npx", args=("-y", "files"), env={"Path": "D:\\node"})
    built = launch.build_launch(spec, None)
    assert built.words == (program, "-y", "files")
    assert built.environment["PATH"] == "D:\\node"
    assert "Path" not in built.environment


def test_on_windows_the_lock_of_the_data_folder_is_a_lock_on_its_first_byte(
    windows: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    locked: set[int] = set()

    def lock(descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1)
        if (inode := os.fstat(descriptor).st_ino) in locked:
            raise PermissionError(13, "Permission denied")
        locked.add(inode)

    module = ModuleType("msvcrt")
    vars(module).update(locking=lock, LK_NBLCK=2)
    windows.setitem(sys.modules, "msvcrt", module)
    source = Path(toolscript.__file__).with_name("pipe") / "place.py"
    spec = importlib.util.spec_from_file_location("place_on_windows", source)
    assert spec
    assert spec.loader
    place = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(place)
    assert not place.HAS_PIPES
    first = place.lock_folder(str(tmp_path), "gateway")
    assert first is not None
    assert place.lock_folder(str(tmp_path), "gateway") is None
    os.close(first)


@pytest.mark.parametrize(
    ("handle", "code", "error", "lives"), [(7, 259, 0, True), (7, 1, 0, False), (0, 0, 87, False), (0, 0, 5, True)]
)
def test_on_windows_the_exit_code_says_whether_a_process_lives(
    windows: pytest.MonkeyPatch, handle: int, code: int, error: int, lives: bool
) -> None:
    def get_code(_: int, result: Any) -> int:
        result._obj.value = code
        return 1

    kernel = SimpleNamespace(
        OpenProcess=lambda *_: handle,
        GetLastError=lambda: error,
        GetExitCodeProcess=get_code,
        CloseHandle=lambda _: 1,
    )
    windows.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    windows.setattr("os.kill", None)
    assert announcement.is_alive(4711) is lives
    assert announcement.find_process_start(4711) is None


def test_on_windows_a_closed_pipe_ends_a_command_without_poll(windows: pytest.MonkeyPatch) -> None:
    windows.delattr(select, "poll")
    windows.setattr(main, "_drop_output", lambda *_: None)
    with pytest.raises(SystemExit) as ended, main._end_without_reader():
        raise BrokenPipeError
    assert ended.value.code == 0


def test_on_windows_the_port_of_a_gateway_is_its_own(windows: pytest.MonkeyPatch) -> None:
    windows.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with listen(load_settings(port=0, variables={})) as listening:
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_on_windows_setup_writes_no_entry_that_could_not_start(windows: pytest.MonkeyPatch) -> None:
    from toolscript.surfaces.cli.setup import command

    windows.setattr(command, "HAS_PIPES", False)
    with pytest.raises(Invalid, match="does not work on Windows: run Toolscript and this command in WSL"):
        command.setup.main(["--yes"], standalone_mode=False)


@pytest.mark.parametrize(
    ("platform", "encoding", "written"),
    [
        ("win32", "cp1252", "caf\u00e9 \u2192"),
        ("linux", "latin-1", "caf\u00e9 ?"),
        ("darwin", "utf-8", "caf\u00e9 \u2192"),
    ],
)
def test_output_takes_every_character(
    monkeypatch: pytest.MonkeyPatch, platform: str, encoding: str, written: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding=encoding)
    use_unicode(stream)
    stream.write("caf\u00e9 \u2192")
    stream.flush()
    assert content.getvalue().decode(stream.encoding) == written


async def test_where_a_loop_cannot_watch_the_input_a_login_still_receives_the_redirect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "add_reader", refuse)
    monkeypatch.setattr(loop, "remove_reader", refuse)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(fileno=lambda: 0))
    with redirect._watch_input(lambda _: None):
        pass
