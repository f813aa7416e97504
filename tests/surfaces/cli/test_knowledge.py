"""Knowledge on the command line: ingest, list, search, export, import and remove; with and without a gateway."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.fixtures.command_line import invoke, run_json
from tests.fixtures.examples import choose
from tests.fixtures.knowledge_search import stock_mongo
from tests.fixtures.limits import set_limits
from tests.servers.preloaded import toolscript_command
from tests.surfaces.cli.data_folders import copy_data
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.gateway import send_to_gateway

pytestmark = [pytest.mark.req("K-06", "G-09"), pytest.mark.usefixtures("small_texts_read_here")]

FULL = Path("/dev/full")

HANDBOOK = """\
# Keeping bees

## 1. Hives

### Shade

A hive needs shade in summer and a dry floor in winter.

## 2. Honey

### Harvest

Honey is taken off in late summer, when the combs are capped.
"""
TIDES = "Tides\n=====\n\nMoons\n-----\n\nSpring tides come with the new moon, neap tides with the half moon.\n"
PAGE = "<html><head><title>Lamps</title></head><body><h1>Lamps</h1><p>A lamp wants oil and a wick.</p></body></html>"


def knowledge(*arguments: str, **how: Any) -> Result:
    return invoke("knowledge", *arguments, **how)


def write_books(folder: Path) -> Path:
    """Three sources, and a file that cannot be read."""
    (folder / "deep").mkdir(parents=True)
    (folder / "bees.md").write_text(HANDBOOK)
    (folder / "deep" / "tides.md").write_text(TIDES)
    (folder / "lamps.html").write_text(PAGE)
    (folder / "cover.png").write_bytes(b"\x89PNG")
    return folder


@pytest.fixture
def books(small_folder: Path) -> Path:
    """A folder in the current one, with three sources."""
    return write_books(Path.cwd() / "books")


@pytest.fixture(scope="module")
def ingested_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of an installation with the three sources. Tests must not change it."""
    folder = tmp_path_factory.mktemp("ingested")
    write_books(folder / "books")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLSCRIPT_SEARCH_MODEL", "hashed-64")
        knowledge("ingest", str(folder / "books"), "--data-dir", str(folder / "data"))
    return folder / "data"


@pytest.fixture
def ingested(ingested_once: Path, small_folder: Path) -> Path:
    """The data folder with the three sources ingested already."""
    copy_data(ingested_once, small_folder)
    return small_folder


def titles() -> list[str]:
    return [each["title"] for each in run_json("knowledge", "list")["sources"]]


def test_a_folder_is_ingested_listed_found_and_removed(books: Path) -> None:
    done = knowledge("ingest", "books")
    assert done.stdout.endswith("\n3 added, 0 changed, 0 unchanged; 1 skipped\n")
    assert "added      Keeping bees" in done.stdout
    assert titles() == ["Keeping bees", "Lamps", "Tides"]

    listed = knowledge("list").stdout.splitlines()
    assert listed[0].split() == ["Title", "Authors", "Type", "Chunks", "Extractions", "Ingested", "Id"]
    assert listed[1].startswith("Keeping bees")

    found = knowledge("search", "a hive needs shade in summer and a dry floor", "--limit", "1").stdout
    assert "A hive needs shade in summer and a dry floor in winter." in " ".join(found.split())
    assert "— Keeping bees, chapter 1 “Hives”, section “Shade”" in found

    assert knowledge("remove", "Keeping", "--yes").stdout == "Removed Keeping bees.\n"
    assert titles() == ["Lamps", "Tides"]
    assert "Keeping bees" not in knowledge("search", "a hive needs shade").stdout


@pytest.mark.req("K-04")
def test_filters_restrict_a_search_to_some_sources(books: Path) -> None:
    front_matter = "---\ntitle: Old hives\nauthor: Ada Rodin\ndate: 2019-05\n---\n\n"
    (books / "old.md").write_text(front_matter + "A hive of straw.\n")
    knowledge("ingest", "books")

    def find(*filters: str) -> list[str]:
        arguments = [part for each in filters for part in ("--filter", each)]
        found = run_json("knowledge", "search", "a hive", "--limit", "100", *arguments)["results"]
        return sorted({each["source"]["title"] for each in found})

    assert find("kind=html") == ["Lamps"]
    assert find("authors~rodin") == ["Old hives"]
    assert find("date>=2019-05-01", "date<2020-01-01", "year=2019") == ["Old hives"]
    assert find("kind=markdown", "title!=tides", "authors!=Ada Rodin") == ["Keeping bees"]
    assert find("year>2019") == []
    nothing = knowledge("search", "a hive", "--filter", "year>2019").stdout
    assert nothing == "Nothing found. Try other words, or leave out --type, --topic, --filter and --min-relevance.\n"
    assert "unknown kind of file 'film'" in knowledge("search", "a hive", "--filter", "kind=film", code=2).stderr
    assert "expected FIELD=VALUE" in knowledge("search", "a hive", "--filter", "kind", code=2).stderr
    assert "ISO 8601" in knowledge("search", "a hive", "--filter", "date>soon", code=2).stderr


def test_title_authors_and_type_can_be_given_for_one_source(books: Path) -> None:
    given = ("--title", "On Lamps", "--author", "Ada", "--author", "Bo", "--type", "paper")
    run_json("knowledge", "ingest", "books/lamps.html", *given)
    (source,) = run_json("knowledge", "list")["sources"]
    assert (source["title"], source["authors"], source["type"]) == ("On Lamps", ["Ada", "Bo"], "paper")
    assert "— Ada and Bo, On Lamps" in knowledge("search", "oil and a wick").stdout
    (again,) = run_json("knowledge", "ingest", "books/lamps.html")["sources"]
    assert (again["outcome"], again["title"]) == ("unchanged", "On Lamps")
    run_json("knowledge", "ingest", "books/lamps.html", "--type", "note")
    (source,) = run_json("knowledge", "list")["sources"]
    assert (source["title"], source["authors"], source["type"]) == ("On Lamps", ["Ada", "Bo"], "note")
    run_json("knowledge", "ingest", "books/bees.md")
    bees, _ = run_json("knowledge", "list")["sources"]
    assert bees["type"] == "book"
    assert "for one source, not for 3" in knowledge("ingest", "books", "--title", "x", code=2).stderr
    assert "(--as-one)" in knowledge("ingest", "books", "--author", "x", code=2).stderr


def test_a_folder_of_pages_is_one_source(books: Path) -> None:
    (books / "index.html").write_text('<title>All of it</title><p>Contents</p><a href="lamps.html">Lamps</a>')
    (source,) = run_json("knowledge", "ingest", "books", "--as-one")["sources"]
    assert (source["title"], source["path"], source["outcome"]) == ("All of it", str(books), "added")
    assert run_json("knowledge", "ingest", "books", "--as-one")["sources"][0]["outcome"] == "unchanged"
    assert titles() == ["All of it"]
    lines = [json.loads(line) for line in knowledge("export").stdout.splitlines()]
    content = "\n".join(line["chunk"]["content"] for line in lines if "chunk" in line)
    assert content.index("Contents") < content.index("oil and a wick") < content.index("A hive needs shade")


def test_globs_choose_which_files_are_read_and_a_file_is_a_source_once(books: Path) -> None:
    answer = run_json("knowledge", "ingest", "books", "books/bees.md", "--exclude", "deep", "--exclude", "*.html")
    assert [each["title"] for each in answer["sources"]] == ["Keeping bees"]
    assert len(run_json("knowledge", "ingest", "books", "--include", "deep/*")["sources"]) == 1


def test_a_link_that_is_named_is_read_by_the_ending_of_its_own_name(books: Path) -> None:
    (books / "bees.md").rename("bees.bin")
    Path("by-name.md").symlink_to("bees.bin")
    (source,) = run_json("knowledge", "ingest", "by-name.md")["sources"]
    assert source["title"] == "Keeping bees"
    assert knowledge("remove", "by-name.md", "--yes").stdout == "Removed Keeping bees.\n"


LONG = "A title that goes on and on, as those of dissertations and of laws do, " * 4


def test_a_source_is_one_line_in_the_terminal_with_its_complete_id(
    books: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowledge("ingest", "books/bees.md", "--author", "Ada Lovelace", "--author", "Charles Babbage")
    knowledge("ingest", "books/lamps.html", "--title", LONG)
    ids = [each["id"] for each in run_json("knowledge", "list")["sources"]]
    for width in (80, 100, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        heads, *rows = knowledge("list").stdout.splitlines()
        assert [row.split()[-1] for row in rows] == ids
        assert max(map(len, (heads, *rows))) <= width
        assert rows[0].startswith("A title that")
        assert "…" in rows[0]
        assert rows[1].startswith("Keeping bees")


def test_in_a_pipe_a_source_is_one_complete_line(books: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    names = [f"Author Number {n}" for n in range(10)]
    knowledge("ingest", "books/bees.md", "--title", LONG[:150], *(w for name in names for w in ("--author", name)))
    knowledge("ingest", "books/lamps.html", "--title", "Z " + LONG)
    _, first, second = knowledge("list").stdout.splitlines()
    assert first.startswith(f"{LONG[:150].strip()} ")
    assert ", ".join(names) in first
    assert second.startswith(("Z " + LONG)[:199] + "…")


def test_it_exits_with_2_when_nothing_can_be_read(small_folder: Path) -> None:
    assert "failed nowhere: no such file" in knowledge("ingest", "nowhere", code=2).stderr
    Path("empty").mkdir()
    assert "empty: no readable files; expected Markdown, " in knowledge("ingest", "empty", code=2).stderr
    assert "empty: no readable files; expected .md " in knowledge("ingest", "empty", "--as-one", code=2).stderr
    Path("blank.txt").write_text("")
    nothing = knowledge("ingest", "blank.txt", code=2).stderr.splitlines()
    assert nothing[0].startswith(f"failed {Path('blank.txt').absolute()}: ")
    assert nothing[1:] == ["error: no readable files in blank.txt"]


def test_no_control_character_of_a_file_reaches_the_terminal(books: Path) -> None:
    text = "# Take\x1b[2J over\n\n## Now\n\nRed \x1b[31malert\x9b1m and \u202eback.\n"
    (books / "\x1b]0;owned\x07.md").write_text(text)
    (books / "\x1b[31m.pdf").write_bytes(b"nonsense")
    shown = knowledge("ingest", "books", "--author", "x", code=2).output + knowledge("ingest", "books").output
    shown += knowledge("list").output + knowledge("search", "red alert", "--full").output
    shown += knowledge("remove", "\x1b[31mnone", "--yes", code=4).output + knowledge("remove", "Take", "--yes").output
    assert "alert" in shown
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_passages_are_shortened_unless_full_ones_are_requested(small_folder: Path) -> None:
    Path("long.txt").write_text("\n\n".join(f"Paragraph {n} speaks of amber and of nothing else." for n in range(40)))
    knowledge("ingest", "long.txt")
    whole = max(len(each["content"]) for each in run_json("knowledge", "search", "amber")["results"])
    assert whole > 700
    short = knowledge("search", "amber", "--limit", "1").stdout
    assert len(short) < 900
    assert "…" in short
    assert "…" not in knowledge("search", "amber", "--full").stdout


@pytest.mark.req("F-03", "F-04")
def test_sections_copies_and_answers_are_shown(small_folder: Path) -> None:
    text = "# Amber\n\n" + "\n\n".join(f"Amber number {n} is old resin of trees, found at sea {n}." for n in range(40))
    for name in ("one", "two"):
        Path(f"{name}.md").write_text(text)
        knowledge("ingest", f"{name}.md", "--title", name)
    found = run_json("knowledge", "search", "amber")
    assert found["metadata"]["search_type"] == "hybrid"
    passages = found["results"]
    sections = run_json("knowledge", "search", "amber", "--context", "section")["results"]
    assert len(sections[0]["content"]) > len(passages[0]["content"])
    shown = knowledge("search", "amber", "--answer").stdout
    assert shown.startswith("No answer: no language model is configured")
    assert "also in " in shown


def test_an_empty_result_suggests_what_to_do(small_folder: Path) -> None:
    no_sources = "No sources yet: add some with toolscript knowledge ingest FILE.\n"
    assert knowledge("list").stdout == no_sources
    assert knowledge("search", "anything").stdout == no_sources
    assert knowledge("export").stdout == ""
    assert run_json("knowledge", "search", "anything")["results"] == []
    Path("a.txt").write_text("Amber is old resin.")
    knowledge("ingest", "a.txt")
    assert "leave out --type, --topic, --filter" in knowledge("search", "amber", "--type", "warning").stdout
    assert "query" in knowledge("search", " ", code=2).stderr


def test_a_source_is_removed_by_a_reference_that_names_only_one(books: Path) -> None:
    knowledge("ingest", "books")
    (books / "more.md").write_text("# Tides of time\n\n## Time\n\nNothing but time.\n")
    knowledge("ingest", "books")
    assert "Keeping bees" in knowledge("remove", "nothing", "--yes", code=4).stderr
    knowledge("remove", "T", "--yes", code=4)
    assert len(titles()) == 4
    knowledge("remove", "Tides", "Nothing", "--yes", code=4)
    assert len(titles()) == 4, "either all are removed or none"
    knowledge("remove", "Tides", "books/more.md", "Tides", "--yes")
    assert titles() == ["Keeping bees", "Lamps"]


def test_nothing_is_removed_without_a_terminal_for_the_confirmation(ingested: Path) -> None:
    for answer in ("n\n", "y\n", ""):
        (line,) = knowledge("remove", "Tides", given=answer, code=2).stderr.splitlines()
        assert line == "error: nothing was removed: there is no terminal for the confirmation; use --yes"
        assert len(titles()) == 3


def test_what_is_exported_can_be_imported_elsewhere(ingested: Path, tmp_path: Path) -> None:
    exported = knowledge("export").stdout
    elsewhere = ("--data-dir", str(tmp_path / "elsewhere"))
    Path("library.jsonl").write_text(exported, encoding="utf-8")
    answer = run_json("knowledge", "import", "library.jsonl", *elsewhere)
    lines = [json.loads(line) for line in exported.splitlines()]
    assert answer == {
        "sources": 3,
        "added": 3,
        "changed": 0,
        "chunks": sum("chunk" in line for line in lines),
        "extractions": 0,
        "refused": [],
        "refused_count": 0,
    }
    carried = [json.loads(line) for line in knowledge("export", *elsewhere).stdout.splitlines()]
    for line in lines:
        line.get("source", {"metadata": {}})["metadata"].pop(
            "digest", None
        )  # not exported as trusted: it is valid only where it was computed
    assert carried == lines
    query = ("knowledge", "search", "a hive needs shade")
    assert run_json(*query, *elsewhere)["results"] == run_json(*query)["results"]


def test_an_export_of_what_does_not_exist_prints_nothing(ingested: Path) -> None:
    assert knowledge("export", "nothing", code=4).stdout == ""


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", choose(["list", "list --json", "export", "search hive --full", "--help"], "export"))
def test_a_full_disk_is_reported_in_one_line(ingested: Path, command: str) -> None:
    if command == "export":  # more than fits into a buffer, so that it fails in the middle
        Path("long.md").write_text("\n\n".join(f"# {n}\n\n{HANDBOOK}" for n in range(100)))
        knowledge("ingest", "long.md")
    with FULL.open("wb") as full:
        arguments = [*toolscript_command(), "knowledge", *command.split()]
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, check=False)
    (line,) = done.stderr.decode().splitlines()
    assert "cannot write: No space left on device. Free some space, or write somewhere else" in line
    assert "bug" not in line
    assert done.returncode == 3


@pytest.mark.req("K-05")
def test_knowledge_in_mongodb_is_read_without_any_other_database(
    small_folder: Path, mongo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(stock_mongo(mongo))
    monkeypatch.setenv("TOOLSCRIPT_KNOWLEDGE", mongo)
    monkeypatch.setenv("TOOLSCRIPT_STORE", "postgresql://127.0.0.1:9/nobody-there")
    assert titles() == ["Gardens", "Of Tides"]
    exported = knowledge("export", "Gardens").stdout.splitlines()
    assert [next(iter(json.loads(line))) for line in exported] == ["source", "chunk", "extraction"]
    assert not small_folder.exists()


def test_an_unknown_store_of_knowledge_is_refused_with_the_allowed_ones(
    small_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCRIPT_KNOWLEDGE", "redis://127.0.0.1/0")
    for command in (["list"], ["search", "moon"], ["ingest", __file__, "--include", "*"]):
        assert "unknown scheme 'redis': leave it empty" in knowledge(*command, code=2).stderr


def test_extractions_are_imported_and_invalid_lines_reported(ingested: Path) -> None:
    content = {"what": "Do not open a hive in the rain", "why": "the brood cools"}
    good = {"extraction": {"source_id": "Keeping bees", "type": "warning", "content": content, "topics": ["Hives"]}}
    lines = ["nonsense", json.dumps(good), "", "[]", json.dumps({"extraction": {"type": "warning"}}), '{"x": 1}']
    done = knowledge("import", "-", given="\n".join(lines))
    assert "0 sources, 0 chunks and 1 extraction imported; 4 lines failed" in done.stdout
    numbers = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert numbers == [f"failed line {number}" for number in (1, 4, 5, 6)]
    (hit,) = run_json("knowledge", "search", "opening hives in rain", "--type", "warning", "--topic", "hives")[
        "results"
    ]
    assert hit["type"] == "extraction"
    assert "the brood cools" in hit["content"]
    assert hit["source"]["title"] == "Keeping bees"
    assert "no valid lines in -" in knowledge("import", "-", given="x\n", code=2).stderr
    assert "cannot read nowhere.jsonl: No such file" in knowledge("import", "nowhere.jsonl", code=2).stderr


def test_while_a_gateway_runs_knowledge_can_be_read_ingested_and_imported(
    books: Path, small_folder: Path, start_gateway: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, upload_poll=0.01)
    monkeypatch.setenv("TOOLSCRIPT_KNOWLEDGE_RATE", "1")  # a minute, which does not hold for the owner of the folder
    knowledge("ingest", "books")
    listed, exported = run_json("knowledge", "list"), knowledge("export").stdout
    query = ("knowledge", "search", "a hive needs shade", "--limit", "2", "--type", "chunk")
    found, shown = run_json(*query), knowledge(*query[1:]).stdout
    start_gateway()
    assert run_json("knowledge", "list") == listed
    assert knowledge("export").stdout == exported
    assert (run_json(*query), knowledge(*query[1:]).stdout) == (found, shown)
    settings = load_settings(variables={}, data_dir=small_folder)
    body = {"query": "a hive needs shade", "limit": 2, "type": ["chunk"]}
    assert send_to_gateway(settings, "/search_knowledge", body=body) == found
    Path("library.jsonl").write_text(exported)
    assert knowledge("ingest", "books").stdout.endswith("0 added, 0 changed, 3 unchanged; 1 skipped\n")
    assert knowledge("remove", "Tides", "--yes").stdout == "Removed Tides.\n"
    assert titles() == ["Keeping bees", "Lamps"]
    Path("library.jsonl").write_text(f"nonsense\n{exported}")
    done = knowledge("import", "library.jsonl")
    assert done.stdout == "3 sources, 4 chunks and 0 extractions imported (sources: 1 added); 1 line failed\n"
    assert "failed line 1: is not valid JSON" in done.stderr
    assert "neap tides" in knowledge("search", "neap tides", "--limit", "1").stdout
    assert titles() == ["Keeping bees", "Lamps", "Tides"]
    answer = run_json("knowledge", "import", "-", given=exported)
    assert (answer["sources"], answer["added"], answer["changed"], answer["refused"]) == (3, 0, 0, [])
    assert "no valid lines in -" in knowledge("import", "-", given="x\n", code=2).stderr


@pytest.mark.extended
def test_knowledge_is_indexed_when_the_index_is_rebuilt(ingested: Path) -> None:
    query = ("knowledge", "search", "a hive needs shade")
    before, chunks = run_json(*query), sum(each["chunks"] for each in run_json("knowledge", "list")["sources"])
    assert run_json("index", "rebuild")["knowledge"] == chunks
    assert run_json(*query) == before
