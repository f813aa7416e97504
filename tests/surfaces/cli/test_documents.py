"""Documents on the command line: with and without a gateway, as text and as JSON."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.fixtures.command_line import invoke, run_json
from tests.fixtures.examples import choose
from toolscript.app.app import open_app
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.announcement import announce_gateway
from toolscript.surfaces.cli.client.gateway import MAX_BODY_BYTES, encode_json, send_to_gateway
from toolscript.surfaces.cli.terminal.values import parse_conditions, parse_pairs, parse_value
from toolscript.surfaces.http import input_limits

pytestmark = pytest.mark.req("D-09")

Toolscript = Callable[..., Result]

PAGE = """<!doctype html><html><head><title>Bees &amp; hives</title><style>p { color: red }</style>
<script>document.write("<p>never</p>")</script></head><body><h1>Keeping bees</h1>
<p>A hive needs <b>shade</b>.<br>And water.</p><noscript>neither</noscript><ul><li>one<li>two</ul></body></html>"""


@pytest.fixture(params=choose(["alone", "with a gateway"], "alone"))
def toolscript(request: pytest.FixtureRequest, small_folder: Path) -> Toolscript:
    """The command on a data folder, with and without a gateway that uses it."""
    if request.param != "alone":
        request.getfixturevalue("start_gateway")()
    return invoke


@pytest.fixture
def notes(small_folder: Path) -> Path:
    """A folder in the current one, with a file of every kind of text."""
    folder = Path.cwd() / "notes"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "keys.md").write_text("Some words first.\n\n# Rotating keys\n\nKeys are rotated every ninety days.\n")
    (folder / "deep" / "lease.rst").write_text("Lease\n=====\n\nThe notice period is three months.\n")
    (folder / "deep" / "er" / "plain.txt").write_text("Nothing but plain words. Grüße!", encoding="utf-8")
    (folder / "page.html").write_text(PAGE)
    (folder / "one.json").write_text(json.dumps({"title": "One", "text": "A document of its own."}))
    lines: list[dict[str, Any]] = [
        {"id": "rows/1", "text": "First row", "metadata": {"year": 2024, "tags": ["a", "b"]}}
    ]
    lines += [{"id": 2, "text": "Second row", "title": "Two", "metadata": {"year": 2019}}]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    return folder


IDS = ["2", "deep/er/plain.txt", "deep/lease.rst", "keys.md", "one.json", "page.html", "rows/1"]


def ids() -> list[str]:
    return [each["id"] for each in run_json("documents", "list", "--limit", "1000")["documents"]]


def test_a_folder_is_ingested_found_shown_and_removed(toolscript: Toolscript, notes: Path) -> None:
    assert toolscript("ingest", "notes").stdout == "7 added, 0 changed, 0 unchanged\n"
    assert toolscript("ingest", "notes").stdout == "0 added, 0 changed, 7 unchanged\n"
    assert ids() == IDS
    (notes / "keys.md").write_text("# Keys\n\nKeys are never rotated.\n")
    report = run_json("ingest", "notes")
    assert report.pop("job").startswith("documents-")
    assert report == {"added": 0, "changed": 1, "unchanged": 6, "removed": 0, "failed": [], "skipped": {}}

    found = toolscript("documents", "search", "keys rotated", "--type", "keyword").stdout.splitlines()
    assert found[0].startswith("  1 keys.md  ")
    assert found[1].strip() == "Keys Keys are never rotated."
    assert found[-1] == "1 to 1 of 1"

    shown = run_json("documents", "show", "deep/lease.rst")
    assert (shown["title"], shown["text"]) == ("Lease", "Lease\n\nThe notice period is three months.")
    assert "notice period" in toolscript("documents", "show", "deep/lease.rst").stdout

    assert run_json("documents", "remove", "keys.md", "nothing") == {"removed": ["keys.md"], "missing": ["nothing"]}
    assert ids() == [each for each in IDS if each != "keys.md"]
    gone = toolscript("documents", "remove", "keys.md", code=4)
    assert "no such document: 'keys.md'" in gone.stderr
    assert "there is no document 'keys.md'" in toolscript("documents", "show", "keys.md", code=4).stderr


def test_a_page_of_hits_says_where_it_is_and_what_follows(toolscript: Toolscript, notes: Path) -> None:
    toolscript("ingest", "notes")
    first = toolscript("documents", "search", "--limit", "3").stdout
    assert first.endswith("1 to 3 of 7; next page: --offset 3\n")
    last = toolscript("documents", "search", "--limit", "3", "--offset", "6").stdout
    assert last.splitlines()[0].startswith("  7 rows/1")
    assert last.endswith("7 to 7 of 7\n")
    assert toolscript("documents", "search", "zzyzx", "--type", "keyword").stdout == "No documents found\n"


@pytest.mark.req("F-03")
def test_a_search_that_finds_nothing_relevant_says_so(toolscript: Toolscript, notes: Path) -> None:
    toolscript("ingest", "notes")
    nonsense = toolscript("documents", "search", "asdf qwer zxcv")
    assert "nothing relevant found" in nonsense.stderr
    assert nonsense.stdout.startswith("  1 ")
    assert (
        toolscript("documents", "search", "asdf qwer zxcv", "--min-relevance", "0.3").stdout == "No documents found\n"
    )
    assert "nothing relevant" not in toolscript("documents", "search", "keys rotated", "--type", "keyword").stderr
    assert "--min-relevance" in toolscript("documents", "search", "keys", "--min-relevance", "2", code=2).stderr


def test_filters_fusion_and_type_are_applied(toolscript: Toolscript, notes: Path) -> None:
    toolscript("ingest", "notes", "--metadata", "team=search", "--metadata", "rank=3", "--metadata", "open=true")

    def find(*arguments: str) -> list[str]:
        return [hit["doc_id"] for hit in run_json("documents", "search", *arguments)["hits"]]

    assert find("--filter", "year>=2020") == ["rows/1"]
    assert find("--filter", "year<2020") == ["2"]
    assert find("--filter", "tags=a", "--filter", "tags!=c") == ["rows/1"]
    assert find("--filter", "extension=.md", "--filter", "open=true", "--filter", "rank=3") == ["keys.md"]
    assert find("--filter", "path~lease") == ["deep/lease.rst"]
    assert find("--filter", "team=search") == IDS
    assert sorted(find("row", "--type", "keyword")) == ["2", "rows/1"]
    assert find("row", "--type", "hybrid", "--fusion", "zscore", "--limit", "1") in (["2"], ["rows/1"])
    wrong = toolscript("documents", "search", "row", "--type", "keyword", "--fusion", "rrf", code=2)
    assert "fusion" in wrong.stderr
    assert (
        "invalid --filter year: expected FIELD=VALUE"
        in toolscript("documents", "search", "--filter", "year", code=2).stderr
    )
    assert "TOOLSCRIPT_RERANKER" in toolscript("documents", "search", "row", "--rerank", code=2).stderr


def test_each_tenant_has_its_own(toolscript: Toolscript, notes: Path) -> None:
    toolscript("ingest", "notes/keys.md", "--tenant", "acme")
    assert run_json("documents", "list")["documents"] == []
    listed = run_json("documents", "list", "--tenant", "acme")["documents"]
    assert [each["id"] for each in listed] == ["keys.md"]
    assert "No documents" in toolscript("documents", "list").stdout
    assert toolscript("documents", "search", "keys").stdout == "No documents found\n"


def test_pruning_removes_what_is_gone_and_nothing_else(toolscript: Toolscript, notes: Path) -> None:
    other = notes.parent / "other"
    other.mkdir()
    (other / "stays.txt").write_text("Not below the notes.")
    toolscript("ingest", "notes", "other")
    (notes / "keys.md").unlink()
    (notes / "rows.jsonl").write_text(json.dumps({"id": "rows/1", "text": "First row"}))
    assert run_json("ingest", "notes", "--exclude", "*.html", "--prune")["removed"] == 2
    assert ids() == [each for each in [*IDS, "stays.txt"] if each not in {"keys.md", "2"}]


def test_pruning_keeps_new_documents_whatever_path_their_metadata_has(toolscript: Toolscript, notes: Path) -> None:
    metadata = {"path": str(notes / "gone.txt"), "source_path": str(notes / "gone.txt")}
    rows = [{"id": name, "text": name, "metadata": metadata} for name in ("kept", "dropped")]
    (notes / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run_json("ingest", "notes/rows.jsonl", "--prune")["removed"] == 0
    assert ids() == ["dropped", "kept"]
    assert run_json("documents", "show", "kept")["metadata"]["path"] == metadata["path"]
    (notes / "rows.jsonl").write_text(json.dumps(rows[0]))
    assert run_json("ingest", "notes/deep/../rows.jsonl", "--prune")["removed"] == 1
    assert ids() == ["kept"]
    (notes / "rows.json").write_text('[{"id": "one", "text": "one"}]')
    (notes / "rows.jsonl").unlink()
    assert run_json("ingest", "notes/deep/..", "--prune", "--include", "rows*")["removed"] == 1


def test_pruning_leaves_alone_what_was_not_ingested(small_folder: Path, notes: Path) -> None:
    async def put() -> None:
        async with open_app(load_settings(variables={}, data_dir=small_folder, search_model="hashed-64")) as app:
            others = Document("other", "Put by somebody else.", metadata={"path": str(notes / "gone.txt")})
            await app.texts.ingest_documents.put("default", [others])

    asyncio.run(put())
    assert run_json("ingest", "notes", "--prune")["removed"] == 0
    assert "other" in ids()
    assert "invalid --metadata source_path" in invoke("ingest", "notes", "--metadata", "source_path=x", code=2).stderr


def test_nothing_is_pruned_below_a_path_that_is_out_of_reach(small_folder: Path, notes: Path) -> None:
    invoke("ingest", "notes")
    notes.rename(notes.with_name("elsewhere"))
    assert "Nothing was removed" in invoke("ingest", "notes", "--prune", code=2).stderr
    assert ids() == IDS


def test_documents_of_a_file_that_can_no_longer_be_read_are_kept(small_folder: Path, notes: Path) -> None:
    invoke("ingest", "notes")
    (notes / "keys.md").write_bytes(b"\xff\xfe")
    (notes / "rows.jsonl").write_text('{"id": "rows/1", "text": "First row"}\nnonsense\n')
    answer = run_json("ingest", "notes", "--prune")
    assert (answer["removed"], len(answer["failed"])) == (0, 2)
    assert ids() == IDS


def test_unreadable_files_are_reported_in_one_line_each_and_the_others_are_ingested(
    small_folder: Path, notes: Path
) -> None:
    (notes / "binary.txt").write_bytes(b"PK\x03\x04\x00\x00")
    (notes / "latin.log").write_bytes("Grüße".encode("latin-1"))
    (notes / "null.log").write_bytes(b"a\0b")
    (notes / "blank.log").write_text(" \n")
    with (notes / "huge.log").open("wb") as huge:
        huge.truncate(40_000_001)
    (notes / "empty.md").write_text(" \n")
    (notes / "no_text.html").write_text("<script>let x</script>")
    (notes / "wrong.json").write_text("{")
    (notes / "number.json").write_text("7")
    rows = [
        '{"id": "x"}',
        "nonsense",
        '{"text": "x"}',
        '{"id": "y", "text": "y", "colour": "red"}',
        '{"id": "z", "text": 1}',
    ]
    rows += ['{"id": "m", "text": "m", "metadata": []}', '{"id": "t", "text": "t", "title": 1}', "[]"]
    (notes / "bad.jsonl").write_text("\n".join(rows))
    named = [str(notes / f"{name}.log") for name in ("latin", "null", "blank", "huge")]
    result = invoke("ingest", "notes", *named)
    assert result.stdout == "9 added, 0 changed, 0 unchanged; 15 failed\n"
    lines = [line.removeprefix(f"failed {notes}{os.sep}") for line in result.stderr.splitlines()]
    by_reader = {"binary.txt", "empty.md", "no_text.html", "blank.log", "huge.log", "null.log"}
    assert by_reader <= {line.partition(": ")[0] for line in lines}, "with the messages of the reader of books"
    assert sorted(line for line in lines if line.partition(": ")[0] not in by_reader) == [
        "bad.jsonl, line 1: text is missing or not a string",
        "bad.jsonl, line 2: not valid JSON: Expecting value: line 1 column 1 (char 0)",
        "bad.jsonl, line 3: id is missing or not a string",
        "bad.jsonl, line 4: unknown field 'colour': expected id, title, text, metadata",
        "bad.jsonl, line 5: text is missing or not a string",
        "bad.jsonl, line 6: metadata is not an object",
        "bad.jsonl, line 7: title is not a string",
        "bad.jsonl, line 8: not a document: expected an object with id, title, text, metadata",
        "wrong.json: not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ]


def test_it_exits_with_2_when_nothing_can_be_read(small_folder: Path) -> None:
    assert "failed nowhere: no such file" in invoke("ingest", "nowhere", code=2).stderr
    Path("empty").mkdir()
    assert "failed empty: no readable files" in invoke("ingest", "empty", code=2).stderr
    Path("blank.txt").write_text("")
    assert "blank.txt: The file is empty." in invoke("ingest", "blank.txt", code=2).stderr
    assert "invalid --metadata team" in invoke("ingest", "empty", "--metadata", "team", code=2).stderr


def test_hidden_files_and_links_that_lead_away_are_left_out_and_no_folder_is_entered_twice(
    small_folder: Path, notes: Path
) -> None:
    (notes / ".hidden.txt").write_text("Hidden.")
    (notes / ".git").mkdir()
    (notes / ".git" / "config.txt").write_text("Hidden.")
    (notes / "deep" / "loop").symlink_to(notes)
    (notes / "deep" / "broken.txt").symlink_to(notes / "nothing.txt")
    Path("elsewhere").mkdir()
    Path("elsewhere", "private.txt").write_text("Not ours.")
    (notes / "away").symlink_to(Path("elsewhere").absolute())
    (notes / "private.txt").symlink_to(Path("elsewhere", "private.txt").absolute())
    (notes / "cover.png").symlink_to(Path("elsewhere", "private.txt").absolute())
    (notes / "kept").mkdir()
    (notes / "kept" / "away.txt").symlink_to(Path("elsewhere", "private.txt").absolute())
    os.mkfifo(notes / "pipe.txt")
    result = invoke("ingest", "notes", "--exclude", "kept")
    assert result.stdout == "7 added, 0 changed, 0 unchanged; 8 skipped\n"
    report = run_json("ingest", "notes", "--exclude", "kept")
    assert report["skipped"] == {
        "hidden": 2,
        "excluded": 1,
        "link out of the folder, or special file": 4,
        "no reader for .png files": 1,
    }
    assert "skipped: 4 (link out of the folder, or special file), 2 (hidden)" in result.stderr


def test_an_empty_or_too_long_name_is_reported_and_the_others_are_ingested(small_folder: Path, notes: Path) -> None:
    too_long = "x" * 300 + ".txt"
    result = invoke("ingest", "", too_long, "notes/deep")
    assert result.stderr.splitlines() == ['failed "": no such file', f"failed {too_long}: File name too long"]
    assert result.stdout == "2 added, 0 changed, 0 unchanged; 2 failed\n"
    assert (
        'cannot read "": no such file. Nothing was removed' in invoke("ingest", "", "notes", "--prune", code=2).stderr
    )
    assert 'failed "": no such file' in invoke("ingest", "", code=2).stderr


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="how long a path may be is another matter there")
def test_a_path_that_is_too_deep_is_reported_and_the_others_are_ingested(small_folder: Path, notes: Path) -> None:
    folder = os.open(notes, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=folder)
        folder, above = os.open("d" * 250, os.O_RDONLY, dir_fd=folder), folder
        os.close(above)
    os.close(folder)
    result = invoke("ingest", "notes")
    assert result.stdout == "7 added, 0 changed, 0 unchanged; 1 failed\n"
    (line,) = result.stderr.splitlines()
    assert line.endswith(": File name too long")


def test_globs_choose_which_files_are_read(small_folder: Path, notes: Path) -> None:
    (notes / "code.py").write_text("print('hello')\n")
    assert run_json("ingest", "notes", "--include", "*.py", "--include", "deep/*")["added"] == 3
    assert ids() == ["code.py", "deep/er/plain.txt", "deep/lease.rst"]
    assert run_json("ingest", "notes", "--exclude", "deep", "--exclude", "*.json*", "--tenant", "t")["added"] == 3


def test_a_file_that_is_named_is_read_whatever_it_ends_in(small_folder: Path) -> None:
    Path("LICENSE").write_text("Do what you like.")
    assert run_json("ingest", "LICENSE")["added"] == 1
    assert run_json("documents", "show", "LICENSE")["title"] == "LICENSE"


def test_of_two_files_with_one_id_the_second_is_reported_as_failed(small_folder: Path) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "same.txt").write_text(f"In {folder}.")
    answer = run_json("ingest", "a", "b")
    assert (answer["added"], len(answer["failed"])) == (1, 1)
    assert "its id 'same.txt' is already used by" in answer["failed"][0]["problem"]
    assert run_json("documents", "show", "same.txt")["text"] == "In a."


def test_titles_and_metadata_come_from_the_files(small_folder: Path, notes: Path) -> None:
    (notes / "fenced.md").write_text("---\ntitle: front\n---\n```\n# a comment\n```\n\nUnderlined\n---\n")
    os.utime(notes / "keys.md", (1_700_000_000, 1_700_000_000))
    invoke("ingest", "notes", "--metadata", "team=search")
    listed = {each["id"]: each for each in run_json("documents", "list")["documents"]}
    assert {doc_id: each["title"] for doc_id, each in listed.items()} == {
        "2": "Two",
        "deep/er/plain.txt": "Nothing but plain words. Grüße!",
        "deep/lease.rst": "Lease",
        "fenced.md": "front",
        "keys.md": "keys",
        "one.json": "One",
        "page.html": "Bees & hives",
        "rows/1": "",
    }
    assert listed["keys.md"]["metadata"] == {
        "path": str(notes / "keys.md"),
        "source_path": str(notes / "keys.md"),
        "extension": ".md",
        "modified": "2023-11-14T22:13:20+00:00",
        "team": "search",
    }
    assert listed["rows/1"]["metadata"]["tags"] == ["a", "b"]


def test_documents_of_files_are_filtered_by_their_authors_and_date(small_folder: Path, notes: Path) -> None:
    (notes / "told.md").write_text("---\ntitle: Bees\nauthor: Ada Rodin\ndate: May 2019\n---\n\nA hive of straw.\n")
    invoke("ingest", "notes", "--metadata", "team=search")
    metadata = run_json("documents", "show", "told.md")["metadata"]
    assert (metadata["authors"], metadata["date"]) == (["Ada Rodin"], "2019-05-01")

    def find(*filters: str) -> list[str]:
        arguments = [part for each in filters for part in ("--filter", each)]
        return [hit["doc_id"] for hit in run_json("documents", "search", *arguments)["hits"]]

    assert find("authors~Rodin") == find("date>=2019-05-01", "date<2020-01-01") == find("title=Bees") == ["told.md"]
    assert find("authors~Rodin", "date<2019-05-01") == []


def test_headings_are_part_of_the_text_where_they_change(small_folder: Path) -> None:
    Path("guide.md").write_text("# Guide\n\n## One\n\na\n\nb\n\n### Deep\n\nc\n\n## Two\n\nd\n")
    invoke("ingest", "guide.md")
    assert run_json("documents", "show", "guide.md")["text"].split("\n\n") == ["One", "a", "b", "Deep", "c", "Two", "d"]


@pytest.mark.extended
def test_the_documents_of_one_file_may_exceed_what_a_request_may_have(
    small_folder: Path, start_gateway: Callable[[], None]
) -> None:
    rows = [{"id": f"d{n}", "text": "ü" * 2**20} for n in range(6)]
    rows += [{"id": f"e{n:03}", "text": "short"} for n in range(600)]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    start_gateway()
    assert run_json("ingest", "rows.jsonl")["added"] == 606
    assert len(ids()) == 606


def test_a_body_that_the_gateway_would_refuse_is_not_sent(small_folder: Path) -> None:
    small_folder.mkdir()
    settings = load_settings(variables={}, data_dir=small_folder)
    with (
        announce_gateway(settings, "http://127.0.0.1:9", key="a-local-key-of-the-tests-that-is-long-enough"),
        pytest.raises(Invalid, match=r"16\.0 MiB, and the gateway at .* accepts at most 16 MiB: send less"),
    ):
        send_to_gateway(settings, "/documents", body="x" * MAX_BODY_BYTES, tenant="default")
    assert MAX_BODY_BYTES == input_limits.MAX_BODY_BYTES
    assert encode_json({"query": "ü\ud800"}) == b'{"query": "\\u00fc\\ud800"}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7.5", -7.5),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("007", "007"),
        ("1_000", "1_000"),
        ("nan", "nan"),
        ("12345678901234567890", "12345678901234567890"),
        ('"7"', "7"),
        ("", ""),
        ("2024-01-01", "2024-01-01"),
    ],
)
def test_values_are_numbers_booleans_or_texts(text: str, value: Any) -> None:
    assert (parse_value(text), type(parse_value(text))) == (value, type(value))
    assert parse_pairs([f"a = b={text}"], "--metadata") == {"a": parse_value(f" b={text}")}


@pytest.mark.parametrize("wrong", ["", "=x", "field", ">3"])
def test_an_invalid_condition_is_refused(wrong: str) -> None:
    with pytest.raises(Exception, match="--filter"):
        parse_conditions([wrong], "--filter")
