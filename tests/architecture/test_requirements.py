"""Requirements as data: none without a test in `make test`, no test without a requirement."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.architecture.sources import parse

TESTS = Path(__file__).parents[1]


def _catalogue() -> dict[str, dict[str, object]]:
    text = (TESTS / "requirements.toml").read_text(encoding="utf-8")
    catalogue: dict[str, dict[str, object]] = tomllib.loads(text)["requirements"]
    return catalogue


@functools.cache
def _read_citations() -> tuple[frozenset[str], frozenset[str]]:
    """The requirements that tests cite, and those that tests of `make test` cite."""
    cited: set[str] = set()
    cited_in_make_test: set[str] = set()
    for file in TESTS.rglob("test_*.py"):
        text = file.read_text(encoding="utf-8")
        if "mark.req(" not in text:
            continue
        for ids, is_extended in _read_tests(parse(text)):
            cited |= ids
            if not is_extended:
                cited_in_make_test |= ids
    return frozenset(cited), frozenset(cited_in_make_test)


def _read_tests(module: ast.Module) -> Iterator[tuple[set[str], bool]]:
    """For each test of the module the requirements that it cites, and whether it is marked as extended."""
    module_marks = [
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            marks: list[ast.AST] = [*module_marks, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            marks = [*module_marks, node]
        else:
            continue
        yield _read_ids(marks), any(_is_extended(mark) for mark in marks)


def _is_extended(mark: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "extended" for node in ast.walk(mark))


def _read_ids(marks: Sequence[ast.AST]) -> set[str]:
    calls = (node for mark in marks for node in ast.walk(mark) if isinstance(node, ast.Call))
    return {
        str(argument.value)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "req"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }


@pytest.mark.slow
@pytest.mark.req("X-10")
def test_every_requirement_that_is_not_planned_has_a_test_in_make_test() -> None:
    due = {name for name, entry in _catalogue().items() if not entry.get("planned")}
    _, cited_in_make_test = _read_citations()
    assert due - cited_in_make_test == set()


def test_every_cited_requirement_exists() -> None:
    cited, _ = _read_citations()
    assert cited - _catalogue().keys() == set()


def test_the_catalogue_is_that_of_the_specification(shared_data: Path) -> None:
    lines = (shared_data.parent / "SPEC.md").read_text(encoding="utf-8").splitlines()
    specified = {line.split("|")[1].strip() for line in lines if line.startswith("| ") and line[3:4] == "-"}
    assert specified == _catalogue().keys()
