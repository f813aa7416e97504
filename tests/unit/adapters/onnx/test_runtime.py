"""Whether the telemetry of ONNX Runtime is stopped before its import, which starts it: with a stand-in for the library,
in a process that has not imported it yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.req("X-09"), pytest.mark.slow]

LIBRARY = """
import os
at_import = os.environ.get("ORT_DISABLE_TELEMETRY")
stopped_later = []
def disable_telemetry_events():
    stopped_later.append(True)
"""
PROGRAM = """
import json
from toolscript.adapters.onnx.runtime import onnxruntime
print(json.dumps([onnxruntime.at_import, bool(onnxruntime.stopped_later)]))
"""


@pytest.mark.parametrize("value", [None, "", "1", "true", "enabled", "2"])
def test_telemetry_is_stopped_unless_the_user_wants_it(value: str | None, tmp_path: Path) -> None:
    """ONNX Runtime takes what it does not know, and an empty value, for a wish to send."""
    assert _import_runtime(value, tmp_path) == ["1", True]


@pytest.mark.parametrize("value", ["0", "false", "FALSE", "no", "off"])
def test_a_user_who_wants_telemetry_gets_it(value: str, tmp_path: Path) -> None:
    assert _import_runtime(value, tmp_path) == [value, False]


def _import_runtime(value: str | None, folder: Path) -> list[object]:
    (folder / "onnxruntime.py").write_text(LIBRARY, encoding="utf-8")
    environment = {name: text for name, text in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
    if value is not None:
        environment["ORT_DISABLE_TELEMETRY"] = value
    command = [sys.executable, "-c", PROGRAM]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    found: list[object] = json.loads(printed)
    return found
