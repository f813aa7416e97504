"""The examples in the docstrings of the ports run and give what they show."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

from toolscript import ports

MODULES = [module.name for module in pkgutil.iter_modules(ports.__path__, f"{ports.__name__}.")]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_port_run(module: str) -> None:
    failed, _ = doctest.testmod(import_module(module))
    assert failed == 0
