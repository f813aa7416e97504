"""Requirements as data: none without a test, no test without a requirement."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]


def _catalogue() -> dict[str, dict[str, object]]:
    text = (TESTS / "requirements.toml").read_text(encoding="utf-8")
    catalogue: dict[str, dict[str, object]] = tomllib.loads(text)["requirements"]
    return catalogue


def _read_citations() -> set[str]:
    cited: set[str] = set()
    for file in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "req":
                cited.update(str(a.value) for a in node.args if isinstance(a, ast.Constant))
    return cited


def test_every_requirement_that_is_not_planned_has_a_test() -> None:
    due = {name for name, entry in _catalogue().items() if not entry.get("planned")}
    assert due - _read_citations() == set()


def test_every_cited_requirement_exists() -> None:
    assert _read_citations() - _catalogue().keys() == set()


def test_the_catalogue_is_that_of_the_specification(shared_data: Path) -> None:
    lines = (shared_data.parent / "SPEC.md").read_text(encoding="utf-8").splitlines()
    specified = {line.split("|")[1].strip() for line in lines if line.startswith("| ") and line[3:4] == "-"}
    assert specified == _catalogue().keys()
