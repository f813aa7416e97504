"""Parsed source files, each read once for all tests of a module."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def parse_file(file: Path) -> ast.Module:
    """The syntax tree of a file. It is shared: nobody may change it."""
    return ast.parse(file.read_text(encoding="utf-8"))
