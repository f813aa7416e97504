"""Parsed source files, each read once for all tests of a module."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path


def parse(text: str) -> ast.Module:
    """The syntax tree, without the garbage collector, which takes as long as the parser and finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if was_enabled:
            gc.enable()


@functools.cache
def parse_file(file: Path) -> ast.Module:
    """The syntax tree of a file. It is shared: nobody may change it."""
    return parse(file.read_text(encoding="utf-8"))


def walk_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """All statements of a tree, also nested ones. Expressions, nine tenths of the nodes, are not looked into."""
    rest: list[ast.AST] = [tree]
    while rest:
        node = rest.pop()
        if isinstance(node, ast.stmt):
            yield node
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            rest += getattr(node, field, ())
