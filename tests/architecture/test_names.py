"""Names in plain English: functions are verbs, one word for one thing, no two classes of one name."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import parse, parse_file

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "src", ROOT / "tests", ROOT / "training", ROOT / "benchmarks", ROOT / "docs"]

# Words of a private dialect, and what to write instead.
FORBIDDEN_WORDS = {
    "told": "response, message, text",
    "held": "existing",
    "said": "text, answer",
    "asked": "request, query",
    "patience": "deadline, timeout",
    "farewell": "shutdown",
    "telling": "event, report",
    "gathered": "batched",
    "apart": "worker",
    "most": "max",
    "least": "min",
    "longest": "max",
    "shortest": "min",
    "oldest": "max_age",
    "sayable": "printable",
    "whoever": "caller",
}
# Names that say nothing of what they hold, in the folders of the use cases. The rest is to be renamed, too.
VAGUE_NAMES = {"found", "each", "wanted", "is_wanted", "own", "sure", "enough", "nothing", "many", "well"}
MAX_VAGUE_NAMES = 138
# First words of a function's name that look like participles and are verbs or nouns.
VERBS_IN_ED = {"embed", "feed", "need", "proceed", "read", "seed", "shed", "speed", "shred", "bed"}
PARTICIPLES = {
    "taken",
    "made",
    "given",
    "found",
    "kept",
    "drawn",
    "left",
    "written",
    "known",
    "shown",
    "chosen",
    "cut_up",
}
# Strings and comments name nothing, but f-strings may: the group keeps these. A string ends at the next quote of its
# kind, because Python 3.11 must be able to read these files.
STRING = r'(?:"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')'
NAME = re.compile(r"[^\W\d]\w*")
FUNCTION = re.compile(r"\bdef\s+(\w+)")
STRINGS_AND_COMMENTS = re.compile(rf"(\b(?:[fF][rR]?|[rR][fF]){STRING})|{STRING}|#[^\n]*", re.DOTALL)


def _names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every name that a module gives to something, with its line."""
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name


@functools.cache
def _words(name: str) -> list[str]:
    spaced = "".join(f"_{c.lower()}" if c.isupper() and not name.isupper() else c.lower() for c in name)
    return [word for word in spaced.split("_") if word]


def _is_participle(word: str) -> bool:
    return word in PARTICIPLES or (word.endswith("ed") and word not in VERBS_IN_ED)


def _is_noun(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the function is read like a value: a property or a fixture."""
    return any("property" in ast.unparse(d) or "fixture" in ast.unparse(d) for d in node.decorator_list)


def _may_have_forbidden_names(text: str) -> bool:
    """Whether a word outside of strings and comments is forbidden. All syntax trees would take ten times as long."""
    if any(_is_participle(word) for name in FUNCTION.findall(text) for word in _words(name)[:1]):
        return True
    lower = text.lower()
    if not any(word in lower for word in FORBIDDEN_WORDS):
        return False
    names = set(NAME.findall(STRINGS_AND_COMMENTS.sub(r"\1", text)))
    return any(not FORBIDDEN_WORDS.keys().isdisjoint(_words(name)) for name in names)


def find_forbidden_names(file: Path) -> list[str]:
    """Names in the file that the dialect's words or a participle make hard to read, each with its line."""
    text = file.read_text(encoding="utf-8")
    if not _may_have_forbidden_names(text):
        return []
    nodes = list(ast.walk(parse(text)))
    found = {(line, name) for line, name in _names(nodes) if not FORBIDDEN_WORDS.keys().isdisjoint(_words(name))}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            words = _words(node.name)
            if words and words[0] != "test" and _is_participle(words[0]) and not _is_noun(node):
                found.add((node.lineno, f"{node.name}()"))
    return [f"{file}:{line}: {name}" for line, name in sorted(found)]


@pytest.mark.slow
def test_names_are_plain_english() -> None:
    files = [file for folder in FOLDERS for file in folder.rglob("*.py") if "toolchain" not in file.parts]
    assert [name for file in sorted(files) for name in find_forbidden_names(file)] == []


@pytest.mark.slow
def test_names_of_use_cases_say_what_they_hold() -> None:
    files = [file for folder in ("services", "retrieval") for file in (ROOT / "src/toolscript" / folder).rglob("*.py")]
    vague = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in sorted(files)
        for line, name in sorted(set(_names(ast.walk(parse_file(file)))))
        if name.strip("_").lower() in VAGUE_NAMES
    ]
    assert len(vague) <= MAX_VAGUE_NAMES, vague


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in parse_file(file).body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(file.relative_to(ROOT / "src").as_posix())
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
