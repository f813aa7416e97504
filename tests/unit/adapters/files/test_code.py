"""Source code: functions and classes become chapters and sections, with and without the grammars."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import toolscript
from toolscript.adapters.files.code import source
from toolscript.adapters.files.parts import Heading, Part, TextBlock, build_book
from toolscript.adapters.files.reader import FileBooks
from toolscript.adapters.files.worker import parse_file
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BlockKind

pytestmark = pytest.mark.req("K-06")


def places(code: str, ending: str) -> list[str]:
    """The paths of definitions, in order, each once."""
    found = build_book(parse_file(code.encode(), ending)).blocks
    return list(dict.fromkeys(block.position.section or block.position.chapter for block in found))


def with_bodies(code: str, comment: str) -> str:
    """The code with every `BODY` replaced by lines that make its definition too long to stay whole."""
    return code.replace("BODY", "\n".join(f"{comment} line {number} of a long body" for number in range(40)))


SAMPLES = {
    ".py": (
        "import os\n\n@cache\ndef first(x):\n    # BODY\n\nclass Hive:\n    '''A hive.'''\n    def __init__(self):\n"
        "        # BODY\n        self.x = 1\n    async def fly(self):\n        # BODY\n        return 2\n",
        ["", "first", "Hive", "Hive.__init__", "Hive.fly"],
    ),
    ".js": (
        "import a from 'a';\n/** Makes it. */\nexport async function make() {\n// BODY\n}\n"
        "export default class Hive {\n  fly() {\n// BODY\n  }\n}\nconst land = (x) => {\n// BODY\n};\n"
        "exports.rest = function () {\n// BODY\n};\n",
        ["", "make", "Hive", "Hive.fly", "land", "exports.rest"],
    ),
    ".ts": (
        "export interface Bee {\n// BODY\n  name: string;\n}\nnamespace Hives {\n"
        "  export function open(b: Bee): void {\n// BODY\n  }\n}\n"
        "type Size = number;\nenum Kind {\n  A,\n  B\n}\nabstract class Base<T> {\n"
        "  abstract fly(): void;\n  land(x: T): T {\n// BODY\n    return x;\n  }\n}\n",
        ["Bee", "Hives", "Hives.open", "", "Kind", "Base", "Base.land"],
    ),
    ".tsx": (
        "export const View = ({ name }: { name: string }) => {\n// BODY\n  return <p>{name}</p>;\n};\n",
        ["View"],
    ),
    ".go": (
        "package hive\n\n// Bee flies.\ntype Bee struct {\n// BODY\n\tName string\n}\n\nfunc (b *Bee) Fly() int {\n"
        "// BODY\n\treturn 1\n}\n\nfunc main() {\n// BODY\n}\n",
        ["", "Bee", "Bee.Fly", "main"],
    ),
    ".rs": (
        "use std::io;\n/// A bee.\n#[derive(Debug)]\npub struct Bee { name: String }\nimpl Fly for Bee {\n"
        "    fn fly(&self) {\n// BODY\n    }\n}\nmod inner {\n    pub fn help() {\n// BODY\n    }\n}\n",
        ["", "Bee", "Bee.fly", "inner", "inner.help"],
    ),
    ".java": (
        "package hive;\n/** A bee. */\npublic class Bee {\n  private int n;\n  public Bee() {\n// BODY\n  }\n"
        '  @Override public String toString() {\n// BODY\n    return "";\n  }\n  record Wing(int n) {}\n}\n',
        ["", "Bee", "Bee.Bee", "Bee.toString"],
    ),
    ".c": (
        "#include <stdio.h>\nstruct bee {\n  int wings;\n};\ntypedef struct {\n  int n;\n} hive_t;\n#ifdef FLY\n"
        "static char *fly(struct bee *b) {\n// BODY\n}\n#endif\nint main(void) {\n// BODY\n}\n",
        ["", "bee", "hive_t", "fly", "main"],
    ),
    ".cpp": (
        "namespace hive {\ntemplate <class T>\nclass Bee {\n public:\n  int fly() const {\n// BODY\n  }\n};\n}\n"
        "int hive::Bee::land(int x) {\n// BODY\n}\n",
        ["hive", "hive.Bee", "hive.Bee.fly", "hive.Bee.land"],
    ),
    ".sh": (
        "#!/bin/sh\nset -e\nfly() {\n# BODY\n  echo fly\n}\nfunction land {\n# BODY\n  echo land\n}\nfly\n",
        ["", "fly", "land"],
    ),
    ".sql": (
        "-- Bees of a hive\nCREATE TABLE shop.bees (\n  id int,\n  name text\n);\nCREATE VIEW big AS\n"
        "  SELECT * FROM bees;\nINSERT INTO bees VALUES (1, 'a');\n",
        ["shop.bees", "big", ""],
    ),
}


@pytest.mark.parametrize("ending", SAMPLES)
def test_definitions_are_chapters_and_sections(ending: str) -> None:
    code, expected = SAMPLES[ending]
    found = places(with_bodies(code, "#" if ending in {".py", ".sh"} else "//"), ending)
    assert [each for each in found if each in expected] == expected
    assert set(found) == set(expected)


def test_a_definition_keeps_its_comments_and_decorators() -> None:
    book = build_book(parse_file(b"x = 1\n\n# Why\n# it is so\n@cache\ndef fly():\n    return 1\n", ".py"))
    assert [(block.position.chapter, block.text) for block in book.blocks] == [
        ("", "x = 1"),
        ("fly", "# Why\n# it is so\n@cache\ndef fly():\n    return 1"),
    ]
    assert {block.kind for block in book.blocks} == {BlockKind.CODE}


def pair_with_headings(parts: Iterable[Part]) -> Iterator[tuple[str, TextBlock]]:
    heading = ""
    for part in parts:
        if isinstance(part, Heading):
            heading = part.text
        else:
            yield heading, part


def test_blocks_of_code_know_their_lines_and_lose_none() -> None:
    path = Path(toolscript.__file__).parent / "adapters" / "files" / "reader.py"
    lines = path.read_text().split("\n")
    headed = list(pair_with_headings(parse_file(path.read_bytes(), ".py").parts))
    parts = [part for _, part in headed]
    written = [line.strip() for line in lines if line.strip()]
    assert [line.strip() for part in parts for line in part.text.split("\n") if line.strip()] == written
    for heading, part in headed:
        assert part.line is not None
        first = heading.rpartition(".")[2] or part.text.split("\n")[0].strip()
        assert first in lines[part.line - 1]
    assert max(len(part.text) for part in parts) <= source._MAX_BLOCK_CHARACTERS


def test_without_grammars_definitions_at_the_margin_are_chapters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    monkeypatch.delitem(sys.modules, "toolscript.adapters.files.code.syntax", raising=False)
    code, _ = SAMPLES[".py"]
    assert places(with_bodies(code, "#"), ".py") == ["", "first", "Hive"]


def test_other_languages_are_read_by_the_words_at_the_margin() -> None:
    assert places("require 'x'\n\nmodule Hive\n  class Bee\n  end\nend\n\ndef fly\n  1\nend\n", ".rb") == [
        "",
        "Hive",
        "fly",
    ]
    assert places("[section]\nkey = value\n", ".toml") == [""]


def test_code_that_does_not_parse_is_still_read() -> None:
    assert places("def fly(:\n  return ((1\nclass\n", ".py")
    assert places("}}}} function (", ".js") == [""]


def test_minified_code_is_refused() -> None:
    with pytest.raises(Invalid, match="minified"):
        parse_file(b"var a=1;" * 10_000, ".js")


@pytest.mark.slow
async def test_deep_nesting_can_only_harm_the_worker(tmp_path: Path) -> None:
    for number, (code, ending) in enumerate(
        (
            ("class A {\n" * 5_000, ".java"),
            ("(\n" * 50_000, ".py"),
            ("".join(f"{' ' * n}class A{n}:\n" for n in range(300)), ".py"),
        )
    ):
        path = tmp_path / f"{number}{ending}"
        path.write_text(f"{code}word = 1\n")
        try:
            outcome = bool((await FileBooks().read(path)).blocks)
        except Invalid as refusal:
            outcome = "damaged or malicious" in refusal.message
        assert outcome


@pytest.mark.slow
async def test_the_line_of_a_definition_is_its_position(tmp_path: Path) -> None:
    (tmp_path / "hive.py").write_text("import os\n\n\ndef fly():\n    return 1\n")
    book = await FileBooks().read(tmp_path / "hive.py")
    assert [(block.position.chapter, block.position.line) for block in book.blocks] == [("", 1), ("fly", 4)]


@pytest.mark.extended
def test_many_definitions_in_one_process_do_not_crash_the_parser() -> None:
    """tree-sitter 0.26.0 read freed memory when garbage was collected during the walk."""
    code = "".join(f"/* {n} */\nstatic int fly{n}(int x)\n{{\n  if (x)\n    return x + {n};\n}}\n" for n in range(500))
    for _ in range(5):
        assert len(places(code, ".c")) == 500
        gc.collect()


@pytest.mark.slow
async def test_the_title_of_code_is_its_file_name_and_a_makefile_needs_no_ending(tmp_path: Path) -> None:
    for name, text in {"my_hive-2.py": "x = 1\n", "Makefile": "all:\n\techo\n", "README": "Read me.\n"}.items():
        (tmp_path / name).write_text(text)
    assert (await FileBooks().read(tmp_path / "my_hive-2.py")).title == "my_hive-2.py"
    assert (await FileBooks().read(tmp_path / "Makefile")).title == "Makefile"
    assert (await FileBooks().read(tmp_path / "README")).blocks[0].text == "Read me."


def test_long_lines_are_cut_into_blocks() -> None:
    code = "x = [\n" + "    'value',\n" * 1_000 + "]\n"
    blocks = build_book(parse_file(code.encode(), ".py")).blocks
    assert max(len(block.text) for block in blocks) <= source._MAX_BLOCK_CHARACTERS


LONG_FUNCTION = "\n".join(f"    total += {n}  # the value of step {n}\n" for n in range(60))
AFTER_IT = "# Aliases of what is above\nfly_fast = fly\n"
LINES_OF_A_SYMBOL = (
    'import functools\n\n\n# Why it flies\n@functools.cache\ndef fly(total=0):\n    """Flies."""\n\n'
    f"{LONG_FUNCTION}\n    return total\n\n\n{AFTER_IT}"
)


@pytest.mark.req("K-02")
def test_every_passage_of_a_definition_has_the_line_of_its_name() -> None:
    blocks = build_book(parse_file(LINES_OF_A_SYMBOL.encode(), ".py")).blocks
    assert {block.position.line for block in blocks if block.position.chapter == "fly"} == {6}
    assert len([block for block in blocks if block.position.chapter == "fly"]) > 2
    alias = blocks[-1]
    assert (alias.text, alias.position.chapter) == (AFTER_IT.strip(), "")
    assert alias.position.line == LINES_OF_A_SYMBOL.split("\n").index("# Aliases of what is above") + 1


@pytest.mark.req("K-02")
def test_without_grammars_what_follows_a_definition_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    monkeypatch.delitem(sys.modules, "toolscript.adapters.files.code.syntax", raising=False)
    blocks = build_book(parse_file(LINES_OF_A_SYMBOL.encode(), ".py")).blocks
    assert {block.position.line for block in blocks if block.position.chapter == "fly"} == {6}
    assert (blocks[-1].text, blocks[-1].position.chapter) == (AFTER_IT.strip(), "")


@pytest.mark.req("K-02")
@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (".rb", "class Hive\n  def fly\n    1\n  end\nend\n\nputs Hive.new\n"),
        (".kt", "class Hive {\n\n    val bees = 1\n\n    fun fly() = bees\n}\n\nval own = Hive()\n"),
        (".cs", "namespace Bees {\n\nclass Hive {\n    int Fly() { return 1; }\n}\n\n}\n\n// The end\n"),
    ],
)
def test_a_definition_of_another_language_ends_with_its_last_bracket_or_end(ending: str, code: str) -> None:
    *own, rest = build_book(parse_file(code.encode(), ending)).blocks
    assert rest.position.chapter == ""
    assert rest.text == code.strip().rpartition("\n")[2]
    assert all(block.position.chapter for block in own)
