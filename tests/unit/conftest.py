"""What several unit tests share."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def ranx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Without its compiler, which takes a minute and a half, and with a home folder to litter."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(importlib.import_module("numba").config, "DISABLE_JIT", True)
        yield importlib.import_module("ranx")
