"""What a process of our own gets of our environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import toolscript


def bare_environment() -> dict[str, str]:
    """Nothing of ours but where to find the code: there are keys in our environment."""
    places = [str(Path(toolscript.__file__).parents[1]), *(each for each in sys.path if each)]
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(places)), "PYTHONUTF8": "1"}
