"""The environment of the worker process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import toolscript


def minimal_environment() -> dict[str, str]:
    """Returns only what Python needs to find the code: our own environment may hold API keys."""
    paths = [str(Path(toolscript.__file__).parents[1]), *(each for each in sys.path if each)]
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUTF8": "1"}
