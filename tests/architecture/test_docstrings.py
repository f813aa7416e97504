"""Docstrings name things again instead of pointing back at them: "that of", "those", "ones", "whose", "which"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import parse_file, walk_statements

SOURCE = Path(__file__).parents[2] / "src" / "toolscript"
CHAIN = re.compile(r"\b(?:that of|those|ones|whose|which)\b", re.IGNORECASE)
MAX_PER_THOUSAND_WORDS = 2.0
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def read_docstrings() -> Iterator[tuple[Path, int, str]]:
    """The file, line and text of every docstring."""
    for file in sorted(SOURCE.rglob("*.py")):
        tree = parse_file(file)
        for node in (tree, *walk_statements(tree)):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                yield file.relative_to(SOURCE), node.body[0].lineno, text


def test_docstrings_name_things_again_instead_of_pointing_at_them() -> None:
    docstrings = list(read_docstrings())
    words = sum(len(text.split()) for _, _, text in docstrings)
    found = [f"{file}:{line}: {', '.join(chain)}" for file, line, text in docstrings if (chain := CHAIN.findall(text))]
    share = 1000 * sum(line.count(",") + 1 for line in found) / words
    assert share <= MAX_PER_THOUSAND_WORDS, "\n".join([f"{share:.1f} in 1000 words", *found])
