"""Documents on the command line: with a gateway that is asked and without one, in words and as JSON."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolscript.app.app import open_app
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.settings import load_settings
from toolscript.surfaces.cli.client.documents import LARGEST_AT_ONCE
from toolscript.surfaces.cli.client.gateway import MAX_BODY_BYTES, ask, said
from toolscript.surfaces.cli.main import run
from toolscript.surfaces.cli.terminal.values import conditions, pairs, typed
from toolscript.surfaces.http import guard

pytestmark = pytest.mark.req("D-09")

Toolscript = Callable[..., Result]

PAGE = """<!doctype html><html><head><title>Bees &amp; hives</title><style>p { color: red }</style>
<script>document.write("<p>never</p>")</script></head><body><h1>Keeping bees</h1>
<p>A hive needs <b>shade</b>.<br>And water.</p><noscript>neither</noscript><ul><li>one<li>two</ul></body></html>"""


def invoke(*arguments: str, code: int = 0) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["toolscript", *arguments])
        result = CliRunner().invoke(run, list(arguments))
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def told(*arguments: str) -> Any:
    return json.loads(invoke(*arguments, "--json").stdout)


@pytest.fixture(params=["alone", "asking a gateway"])
def toolscript(request: pytest.FixtureRequest, small_folder: Path) -> Toolscript:
    """The command on a data folder, which a gateway may have."""
    if request.param != "alone":
        request.getfixturevalue("start_gateway")()
    return invoke


@pytest.fixture
def notes(small_folder: Path) -> Path:
    """A folder with a file of every kind that is read, below the folder that the command stands in."""
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
    return [each["id"] for each in told("documents", "list", "--limit", "1000")["documents"]]


def test_a_folder_is_put_in_found_shown_and_removed(toolscript: Toolscript, notes: Path) -> None:
    assert toolscript("ingest", "notes").stdout == "7 added, 0 changed, 0 unchanged\n"
    assert toolscript("ingest", "notes").stdout == "0 added, 0 changed, 7 unchanged\n"
    assert ids() == IDS
    (notes / "keys.md").write_text("# Keys\n\nKeys are never rotated.\n")
    assert told("ingest", "notes") == {"added": 0, "changed": 1, "unchanged": 6, "removed": 0, "failed": []}

    found = toolscript("documents", "search", "keys rotated", "--type", "keyword").stdout.splitlines()
    assert found[0].startswith("  1 keys.md  ")
    assert found[1].strip() == "# Keys Keys are never rotated."
    assert found[-1] == "1 to 1 of 1"

    shown = told("documents", "show", "deep/lease.rst")
    assert (shown["title"], shown["text"]) == ("Lease", (notes / "deep" / "lease.rst").read_text())
    assert "notice period" in toolscript("documents", "show", "deep/lease.rst").stdout

    assert told("documents", "remove", "keys.md", "nothing") == {"removed": ["keys.md"], "missing": ["nothing"]}
    assert ids() == [each for each in IDS if each != "keys.md"]
    gone = toolscript("documents", "remove", "keys.md", code=4)
    assert "there is no document 'keys.md'" in gone.stderr
    assert "there is no document 'keys.md'" in toolscript("documents", "show", "keys.md", code=4).stderr


def test_a_page_of_hits_says_where_it_is_and_what_follows(toolscript: Toolscript, notes: Path) -> None:
    toolscript("ingest", "notes")
    first = toolscript("documents", "search", "--limit", "3").stdout
    assert first.endswith("1 to 3 of 7; --offset 3 shows what follows\n")
    last = toolscript("documents", "search", "--limit", "3", "--offset", "6").stdout
    assert last.splitlines()[0].startswith("  7 rows/1  0.000")
    assert last.endswith("7 to 7 of 7\n")
    assert toolscript("documents", "search", "zzyzx", "--type", "keyword").stdout == "No documents found\n"


def test_filters_fusion_and_type_are_heard(toolscript: Toolscript, notes: Path) -> None:
    toolscript("ingest", "notes", "--metadata", "team=search", "--metadata", "rank=3", "--metadata", "open=true")

    def found(*arguments: str) -> list[str]:
        return [hit["doc_id"] for hit in told("documents", "search", *arguments)["hits"]]

    assert found("--filter", "year>=2020") == ["rows/1"]
    assert found("--filter", "year<2020") == ["2"]
    assert found("--filter", "tags=a", "--filter", "tags!=c") == ["rows/1"]
    assert found("--filter", "extension=.md", "--filter", "open=true", "--filter", "rank=3") == ["keys.md"]
    assert found("--filter", "path~lease") == ["deep/lease.rst"]
    assert found("--filter", "team=search") == IDS
    assert sorted(found("row", "--type", "keyword")) == ["2", "rows/1"]
    assert found("row", "--type", "hybrid", "--fusion", "zscore", "--limit", "1") in (["2"], ["rows/1"])
    wrong = toolscript("documents", "search", "row", "--type", "keyword", "--fusion", "rrf", code=2)
    assert "fusion" in wrong.stderr
    assert "--filter year is not usable" in toolscript("documents", "search", "--filter", "year", code=2).stderr
    assert "TOOLSCRIPT_RERANKER" in toolscript("documents", "search", "row", "--rerank", code=2).stderr


def test_each_tenant_has_its_own(toolscript: Toolscript, notes: Path) -> None:
    toolscript("ingest", "notes/keys.md", "--tenant", "acme")
    assert told("documents", "list")["documents"] == []
    listed = told("documents", "list", "--tenant", "acme")["documents"]
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
    assert told("ingest", "notes", "--exclude", "*.html", "--prune")["removed"] == 2
    assert ids() == [each for each in [*IDS, "stays.txt"] if each not in {"keys.md", "2"}]


def test_pruning_keeps_what_was_just_put_whatever_path_it_says_it_has(toolscript: Toolscript, notes: Path) -> None:
    says = {"path": str(notes / "gone.txt"), "source_path": str(notes / "gone.txt")}
    rows = [{"id": name, "text": name, "metadata": says} for name in ("kept", "dropped")]
    (notes / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert told("ingest", "notes/rows.jsonl", "--prune")["removed"] == 0
    assert ids() == ["dropped", "kept"]
    assert told("documents", "show", "kept")["metadata"]["path"] == says["path"]
    (notes / "rows.jsonl").write_text(json.dumps(rows[0]))
    assert told("ingest", "notes/deep/../rows.jsonl", "--prune")["removed"] == 1
    assert ids() == ["kept"]
    (notes / "rows.json").write_text("[]")
    (notes / "rows.jsonl").unlink()
    assert told("ingest", "notes/deep/..", "--prune", "--include", "rows*")["removed"] == 1


def test_pruning_leaves_alone_what_was_not_ingested(small_folder: Path, notes: Path) -> None:
    async def put() -> None:
        async with open_app(load_settings(variables={}, data_dir=small_folder, search_model="hashed-64")) as app:
            others = Document("other", "Put by somebody else.", metadata={"path": str(notes / "gone.txt")})
            await app.ingest_documents.put("default", [others])

    asyncio.run(put())
    assert told("ingest", "notes", "--prune")["removed"] == 0
    assert "other" in ids()
    assert (
        "--metadata source_path is not usable"
        in invoke("ingest", "notes", "--metadata", "source_path=x", code=2).stderr
    )


def test_nothing_is_pruned_below_a_path_that_is_out_of_reach(small_folder: Path, notes: Path) -> None:
    invoke("ingest", "notes")
    notes.rename(notes.with_name("elsewhere"))
    assert "nothing is removed" in invoke("ingest", "notes", "--prune", code=2).stderr
    assert ids() == IDS


def test_documents_of_a_file_that_can_no_longer_be_read_are_kept(small_folder: Path, notes: Path) -> None:
    invoke("ingest", "notes")
    (notes / "keys.md").write_bytes(b"\xff\xfe")
    (notes / "rows.jsonl").write_text('{"id": "rows/1", "text": "First row"}\nnonsense\n')
    answer = told("ingest", "notes", "--prune")
    assert (answer["removed"], len(answer["failed"])) == (0, 2)
    assert ids() == IDS


def test_what_cannot_be_read_is_told_in_one_line_each_and_the_others_go_on(small_folder: Path, notes: Path) -> None:
    (notes / "binary.txt").write_bytes(b"PK\x03\x04\x00\x00")
    (notes / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (notes / "empty.md").write_text(" \n")
    (notes / "no_text.html").write_text("<script>let x</script>")
    (notes / "wrong.json").write_text("{")
    (notes / "number.json").write_text("7")
    with (notes / "huge.txt").open("wb") as huge:
        huge.truncate(40_000_001)
    rows = [
        '{"id": "x"}',
        "nonsense",
        '{"text": "x"}',
        '{"id": "y", "text": "y", "colour": "red"}',
        '{"id": "z", "text": 1}',
    ]
    rows += ['{"id": "m", "text": "m", "metadata": []}', '{"id": "t", "text": "t", "title": 1}', "[]"]
    (notes / "bad.jsonl").write_text("\n".join(rows))
    result = invoke("ingest", "notes")
    assert result.stdout == "7 added, 0 changed, 0 unchanged; 15 could not be read\n"
    lines = [line.removeprefix(f"not read: {notes}{os.sep}") for line in result.stderr.splitlines()]
    assert sorted(lines) == [
        "bad.jsonl, line 1: has no text",
        "bad.jsonl, line 2: is no JSON: Expecting value: line 1 column 1 (char 0)",
        "bad.jsonl, line 3: has no id: give a text",
        "bad.jsonl, line 4: has a field 'colour': a document has id, title, text, metadata",
        "bad.jsonl, line 5: has no text",
        "bad.jsonl, line 6: has metadata that is no object",
        "bad.jsonl, line 7: has a title that is no text",
        "bad.jsonl, line 8: is no document: give an object with id, title, text, metadata",
        "binary.txt: is no text",
        "empty.md: is empty",
        "huge.txt: is larger than 40 MB",
        "latin.txt: is not UTF-8",
        "no_text.html: has no text between its tags",
        "number.json: holds no document: give an object with id, title, text, metadata, or a list of them",
        "wrong.json: is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ]


def test_it_ends_with_2_when_nothing_could_be_read(small_folder: Path) -> None:
    assert "nowhere: is not there" in invoke("ingest", "nowhere", code=2).stderr
    Path("empty").mkdir()
    assert "empty: has no file that can be read" in invoke("ingest", "empty", code=2).stderr
    Path("blank.txt").write_text("")
    assert "blank.txt: is empty" in invoke("ingest", "blank.txt", code=2).stderr
    assert "--metadata team is not usable" in invoke("ingest", "empty", "--metadata", "team", code=2).stderr


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
    assert result.stdout == "7 added, 0 changed, 0 unchanged\n"
    assert result.stderr == "note: 4 links and special files were left out\n"
    only_the_folder = "note: 1 link or special file was left out\n"
    assert invoke("ingest", "notes", "--include", "lease.*").stderr == only_the_folder


def test_a_name_that_is_empty_or_too_long_is_told_and_the_others_go_on(small_folder: Path, notes: Path) -> None:
    too_long = "x" * 300 + ".txt"
    result = invoke("ingest", "", too_long, "notes/deep")
    assert result.stderr.splitlines() == ['not read: "": is not there', f"not read: {too_long}: File name too long"]
    assert result.stdout == "2 added, 0 changed, 0 unchanged; 2 could not be read\n"
    assert '"" is not there: nothing is removed' in invoke("ingest", "", "notes", "--prune", code=2).stderr
    assert 'not read: "": is not there' in invoke("ingest", "", code=2).stderr


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="how long a path may be is another matter there")
def test_what_lies_too_deep_is_told_and_the_others_go_on(small_folder: Path, notes: Path) -> None:
    folder = os.open(notes, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=folder)
        folder, above = os.open("d" * 250, os.O_RDONLY, dir_fd=folder), folder
        os.close(above)
    os.close(folder)
    result = invoke("ingest", "notes")
    assert result.stdout == "7 added, 0 changed, 0 unchanged; 1 could not be read\n"
    (line,) = result.stderr.splitlines()
    assert line.endswith(": File name too long")


def test_globs_say_what_is_read(small_folder: Path, notes: Path) -> None:
    (notes / "code.py").write_text("print('hello')\n")
    assert told("ingest", "notes", "--include", "*.py", "--include", "deep/*")["added"] == 3
    assert ids() == ["code.py", "deep/er/plain.txt", "deep/lease.rst"]
    assert told("ingest", "notes", "--exclude", "deep", "--exclude", "*.json*", "--tenant", "t")["added"] == 2


def test_a_file_that_is_named_is_read_whatever_it_ends_in(small_folder: Path) -> None:
    Path("LICENSE").write_text("Do what you like.")
    assert told("ingest", "LICENSE")["added"] == 1
    assert told("documents", "show", "LICENSE")["title"] == "LICENSE"


def test_of_two_files_with_one_id_the_second_is_told_and_left_out(small_folder: Path) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "same.txt").write_text(f"In {folder}.")
    answer = told("ingest", "a", "b")
    assert (answer["added"], len(answer["failed"])) == (1, 1)
    assert "has the id 'same.txt', which" in answer["failed"][0]["problem"]
    assert told("documents", "show", "same.txt")["text"] == "In a."


def test_titles_and_metadata_come_from_the_files(small_folder: Path, notes: Path) -> None:
    (notes / "fenced.md").write_text("---\ntitle: front\n---\n```\n# a comment\n```\n\nUnderlined\n---\n")
    os.utime(notes / "keys.md", (1_700_000_000, 1_700_000_000))
    invoke("ingest", "notes", "--metadata", "team=search")
    listed = {each["id"]: each for each in told("documents", "list")["documents"]}
    assert {doc_id: each["title"] for doc_id, each in listed.items()} == {
        "2": "Two",
        "deep/er/plain.txt": "plain.txt",
        "deep/lease.rst": "Lease",
        "fenced.md": "Underlined",
        "keys.md": "Rotating keys",
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


def test_a_page_is_its_text_without_tags_scripts_and_styles(small_folder: Path, notes: Path) -> None:
    invoke("ingest", "notes/page.html")
    assert told("documents", "show", "page.html")["text"] == ("Keeping bees\nA hive needs shade.\nAnd water.\none\ntwo")


def test_more_than_one_request_can_hold_is_sent_in_several(
    small_folder: Path, start_gateway: Callable[[], None]
) -> None:
    rows = [{"id": f"d{n}", "text": "ü" * (LARGEST_AT_ONCE // 8)} for n in range(6)]  # two bytes each on the way
    rows += [{"id": f"e{n:03}", "text": "short"} for n in range(600)]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    start_gateway()
    assert told("ingest", "rows.jsonl")["added"] == 606
    assert len(ids()) == 606


def test_what_no_request_can_hold_is_told_in_one_line_and_the_others_go_on(
    small_folder: Path, start_gateway: Callable[[], None]
) -> None:
    Path("large.txt").write_text('"' * (MAX_BODY_BYTES // 2))  # two bytes each on the way
    Path("wide.txt").write_text("ü " * 1_500_000, encoding="utf-8")  # 19 MB were they escaped
    Path("small.txt").write_text("small")
    start_gateway()
    answer = told("ingest", "large.txt", "wide.txt", "small.txt", "--prune")
    assert (answer["added"], answer["removed"]) == (2, 0)
    assert [each["path"] for each in answer["failed"]] == [str(Path("large.txt").absolute())]
    assert "16.0 MiB to send, and the gateway takes 16 at a time" in answer["failed"][0]["problem"]
    assert "nothing could be read of large.txt" in invoke("ingest", "large.txt", code=2).stderr


def test_a_body_that_the_gateway_would_hang_up_on_is_not_sent(
    small_folder: Path, start_gateway: Callable[[], None]
) -> None:
    start_gateway()
    with pytest.raises(Invalid, match=r"16\.0 MiB, and the gateway at .* takes at most 16: send less"):
        ask(
            load_settings(variables={}, data_dir=small_folder),
            "/documents",
            body="x" * MAX_BODY_BYTES,
            tenant="default",
        )
    assert MAX_BODY_BYTES == guard.MAX_BODY_BYTES
    assert said({"query": "ü\ud800"}) == b'{"query": "\\u00fc\\ud800"}'


def test_what_a_gateway_was_given_is_there_without_it(small_folder: Path, notes: Path) -> None:
    invoke("ingest", "notes")

    async def counted() -> int:
        async with open_app(load_settings(variables={}, data_dir=small_folder, search_model="hashed-64")) as app:
            return await app.documents.count("default")

    assert asyncio.run(counted()) == 7


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
def test_values_are_numbers_truths_or_texts(text: str, value: Any) -> None:
    assert (typed(text), type(typed(text))) == (value, type(value))
    assert pairs([f"a = b={text}"], "--metadata") == {"a": typed(f" b={text}")}


@pytest.mark.parametrize("wrong", ["", "=x", "field", ">3"])
def test_a_condition_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(Exception, match="--filter"):
        conditions([wrong], "--filter")
