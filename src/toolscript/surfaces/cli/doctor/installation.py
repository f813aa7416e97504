"""Looks at the installed package, the index engine and the models."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from toolscript import __version__
from toolscript.app.inspection import check_index, check_index_folder
from toolscript.app.models import check_models
from toolscript.domain.errors import FolderInUse, ToolscriptError
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.announcement import read_announcement
from toolscript.surfaces.cli.doctor.findings import DoctorFinding, Level

MIN_PYTHON, MAX_PYTHON = (3, 11), (3, 14)
# What the gateway itself needs; the other extras belong to settings and files, which name them when they need them.
NEEDED_EXTRA = "server"
REINSTALL = "install Toolscript again; where its engine has no wheel for this machine, pip says so"


def inspect_package() -> Iterator[DoctorFinding]:
    """Looks at Python, the version of the package, and which extras are installed."""
    python = f"Python {platform.python_version()} ({platform.system()} {platform.machine()}), {sys.executable}"
    if not MIN_PYTHON <= sys.version_info[:2] <= MAX_PYTHON:
        allowed = f"{'.'.join(map(str, MIN_PYTHON))} to {'.'.join(map(str, MAX_PYTHON))}"
        yield DoctorFinding(
            "package", Level.NOTE, python, f"Toolscript is made for Python {allowed}: install it with one"
        )
    else:
        yield DoctorFinding("package", Level.OK, python)
    installed, missing = _sort_extras()
    text = f"toolscript {__version__}, with {', '.join(installed) or 'no extras'}"
    if NEEDED_EXTRA in missing:
        action = f"pip install 'toolscript[{NEEDED_EXTRA}]'"
        yield DoctorFinding(
            "package", Level.ERROR, f"{text}. The gateway and MCP need the extra {NEEDED_EXTRA}", action
        )
    else:
        rest = f"; not installed: {', '.join(missing)}" if missing else ""
        yield DoctorFinding("package", Level.OK, f"{text}{rest}")


def _sort_extras() -> tuple[list[str], list[str]]:
    """The extras of the package: those with all their requirements installed, and the others."""
    try:
        extras = metadata("toolscript").get_all("Provides-Extra") or []
        wanted = requires("toolscript") or []
    except PackageNotFoundError:  # the source code without an installation
        return [], []
    missing = {
        match["extra"]
        for each in wanted
        if (match := re.match(r"(?P<name>[\w.-]+).*extra == ['\"](?P<extra>[\w-]+)", each))
        and "win32" not in each
        and not _is_installed(match["name"])
    }
    return [each for each in extras if each not in missing], [each for each in extras if each in missing]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def inspect_index(settings: Settings) -> Iterator[DoctorFinding]:
    """Looks whether the engine works on this machine, and whether its folder can be opened."""
    try:
        engine = asyncio.run(check_index(settings))
    except ToolscriptError as error:
        yield DoctorFinding("index", Level.ERROR, error.message, "correct TOOLSCRIPT_INDEX, or start what it names")
        return
    except Exception as error:  # noqa: BLE001  (an engine may fail in any way on a machine that it was not built for)
        yield DoctorFinding(
            "index", Level.ERROR, f"the engine does not work: {type(error).__name__}: {error}", REINSTALL
        )
        return
    yield DoctorFinding("index", Level.OK, f"{engine} works")
    try:
        for problem in check_index_folder(settings):
            yield DoctorFinding("index", Level.ERROR, problem, "run `toolscript index rebuild`")
    except FolderInUse as error:
        yield _describe_holder(settings, error.message)
    except OSError as error:
        text = f"{error.filename} cannot be opened: {error.strerror}"
        yield DoctorFinding("index", Level.ERROR, text, "change its owner to the user who runs Toolscript")


def _describe_holder(settings: Settings, text: str) -> DoctorFinding:
    announced = read_announcement(settings.data)
    if announced:
        return DoctorFinding("index", Level.OK, f"open in the gateway {announced.describe()}")
    pid = _find_holder(settings.data / "index" / ".lock")
    holder = f": process {pid}" if pid else ""
    action = "wait until that command has ended" + (f", or end it with `kill {pid}`" if pid else "")
    return DoctorFinding("index", Level.NOTE, f"{text}{holder}", action)


def _find_holder(lock: Path) -> int | None:
    """The process that has locked a file; None where the system does not say."""
    try:
        status = lock.stat()
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if device in fields and "->" not in fields:
                return int(fields[fields.index(device) - 1])
    except (OSError, ValueError, AttributeError):  # not Linux
        pass
    return None


def inspect_model(settings: Settings) -> Iterator[DoctorFinding]:
    """Looks whether the models are unchanged, load, and embed a text."""
    try:
        for model in asyncio.run(check_models(settings)):
            yield DoctorFinding("model", Level.OK, f"{model}: loads and embeds")
    except ToolscriptError as error:
        action = (
            "until then searches go by words alone: correct TOOLSCRIPT_SEARCH_MODEL, or unset it for the packaged model"
        )
        yield DoctorFinding("model", Level.ERROR, error.message, action)
    except Exception as error:  # noqa: BLE001  (a runtime that does not fit this machine may fail in any way)
        yield DoctorFinding("model", Level.ERROR, f"does not load: {type(error).__name__}: {error}", REINSTALL)
