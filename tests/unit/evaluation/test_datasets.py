"""Evaluation sets: reading them, and errors that name file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from toolscript.domain.catalog import Item
from toolscript.domain.documents import Document
from toolscript.domain.errors import Invalid
from toolscript.evaluation.datasets import DocumentSet, JudgedQuery, ToolSet, demo_folder, read_set

TOOL = {"id": "fs/read", "server": "fs", "name": "read", "description": "Reads.", "input_schema": {"type": "object"}}
OTHER = {"id": "fs/write", "server": "fs", "name": "write"}
QUERY = {"query": "read it", "relevant": ["fs/read"]}
DOCUMENT = {"id": "d1", "text": "Some text.", "title": "A title"}
GRADED = {"query": "about texts", "relevant": {"d1": 2}}


def jsonl(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "my set"
    made.mkdir()
    return made


def tool_set(folder: Path, *queries: Any, tools: str = jsonl(TOOL, OTHER)) -> ToolSet:
    (folder / "tools.jsonl").write_text(tools, encoding="utf-8")
    (folder / "queries.jsonl").write_text(jsonl(*queries), encoding="utf-8")
    found = read_set(folder)
    assert isinstance(found, ToolSet)
    return found


def document_set(folder: Path, *queries: Any, documents: str = jsonl(DOCUMENT)) -> DocumentSet:
    (folder / "documents.jsonl").write_text(documents, encoding="utf-8")
    (folder / "queries.jsonl").write_text(jsonl(*queries), encoding="utf-8")
    found = read_set(folder)
    assert isinstance(found, DocumentSet)
    return found


def test_tools_and_queries_are_read(folder: Path) -> None:
    found = tool_set(folder, QUERY)
    assert found.name == "my set"
    assert found.items == {
        "fs/read": Item("fs", "read", "Reads.", input_schema={"type": "object"}),
        "fs/write": Item("fs", "write"),
    }
    assert found.queries == [JudgedQuery("read it", {"fs/read": 1.0}, (frozenset({"fs/read"}),))]
    assert found.unanswerable == []


def test_gzipped_tools_are_read_like_plain_ones(folder: Path) -> None:
    plain = tool_set(folder, QUERY)
    (folder / "tools.jsonl").unlink()
    (folder / "tools.jsonl.gz").write_bytes(gzip.compress(jsonl(TOOL, OTHER).encode()))
    assert read_set(folder) == plain


def test_texts_are_read_as_utf_8(folder: Path) -> None:
    found = tool_set(folder, {"query": "读取 файл", "relevant": ["ü"]}, tools=jsonl({**TOOL, "id": "ü"}))
    assert (found.queries[0].text, list(found.items)) == ("读取 файл", ["ü"])


def test_documents_and_grades_are_read(folder: Path) -> None:
    untitled = {"id": 2, "text": "More.", "title": None}
    found = document_set(folder, {"query": "q", "relevant": {"d1": 2, "2": 1}}, documents=jsonl(DOCUMENT, untitled))
    assert found.documents == [Document("d1", "Some text.", "A title"), Document("2", "More.")]
    assert found.queries[0].grades == {"d1": 2.0, "2": 1.0}


def test_every_relevant_tool_is_a_group_unless_groups_are_given(folder: Path) -> None:
    both = ["fs/read", "fs/write"]
    separate, empty, grouped = tool_set(
        folder,
        {"query": "a", "relevant": both},
        {"query": "b", "relevant": both, "groups": []},
        {"query": "c", "relevant": both, "groups": [both]},
    ).queries
    assert set(separate.groups) == set(empty.groups) == {frozenset({"fs/read"}), frozenset({"fs/write"})}
    assert grouped.groups == (frozenset(both),)
    assert separate.grades == grouped.grades


def test_unanswerable_queries_are_separate(folder: Path) -> None:
    (folder / "negatives.jsonl").write_text(jsonl({"query": "ukulele", "relevant": []}), encoding="utf-8")
    found = tool_set(folder, QUERY, {"query": "telescope", "relevant": []})
    assert [q.text for q in found.queries] == ["read it"]
    assert found.unanswerable == ["telescope", "ukulele"]


def test_an_unanswerable_document_query_is_left_out(folder: Path) -> None:
    found = document_set(folder, GRADED, {"query": "b", "relevant": {}}, {"query": "c", "relevant": {"d1": 0}})
    assert all(any(grade > 0 for grade in q.grades.values()) for q in found.queries)
    assert "about texts" in [q.text for q in found.queries]


def test_numbers_as_ids_mean_the_same_in_a_list_as_in_a_mapping(folder: Path) -> None:
    listed, mapped = document_set(
        folder,
        {"query": "a", "relevant": [7]},
        {"query": "b", "relevant": {"7": 1}},
        documents=jsonl({"id": 7, "text": "Seven."}),
    ).queries
    assert (listed.grades, listed.groups) == (mapped.grades, mapped.groups)


def test_the_demo_set_is_complete() -> None:
    found = read_set(demo_folder())
    assert isinstance(found, ToolSet)
    assert [i for q in found.queries for i in q.grades if i not in found.items] == []
    assert all(own == item.id for own, item in found.items.items())


@pytest.mark.req("X-03")
def test_a_path_that_is_not_a_folder_is_named(folder: Path) -> None:
    (folder / "file").touch()
    for wrong in (folder / "nowhere", folder / "file"):
        with pytest.raises(Invalid) as refused:
            read_set(wrong)
        assert refused.value.message == f"not a folder: {wrong}"


@pytest.mark.req("X-03")
@pytest.mark.parametrize("queries", [None, ""])
def test_a_folder_without_queries_is_refused(folder: Path, queries: str | None) -> None:
    (folder / "tools.jsonl").write_text(jsonl(TOOL), encoding="utf-8")
    if queries is not None:
        (folder / "queries.jsonl").write_text(queries, encoding="utf-8")
    with pytest.raises(Invalid, match=r"queries\.jsonl") as refused:
        read_set(folder)
    assert str(folder) in refused.value.message


@pytest.mark.req("X-03")
def test_a_folder_with_only_queries_is_refused_with_the_allowed_files(folder: Path) -> None:
    (folder / "queries.jsonl").write_text(jsonl(QUERY), encoding="utf-8")
    with pytest.raises(Invalid) as refused:
        read_set(folder)
    for name in (str(folder), "tools.jsonl", "tools.jsonl.gz", "documents.jsonl"):
        assert name in refused.value.message


@pytest.mark.req("X-03")
@pytest.mark.parametrize("name", ["queries.jsonl", "tools.jsonl", "negatives.jsonl", "documents.jsonl"])
def test_a_line_that_is_not_json_is_named_by_file_and_number(folder: Path, name: str) -> None:
    good = {"queries.jsonl": QUERY, "tools.jsonl": TOOL, "negatives.jsonl": {"query": "x", "relevant": []}}
    for each, row in good.items():
        (folder / each).write_text(jsonl(row), encoding="utf-8")
    row = good.get(name, DOCUMENT)
    (folder / name).write_text(jsonl(row, row) + '{"id": \n' + jsonl(row), encoding="utf-8")
    with pytest.raises(Invalid) as refused:
        read_set(folder)
    assert f"{folder / name}, line 3" in refused.value.message
    assert refused.value.details["line"] == 3


@pytest.mark.req("X-03")
def test_a_bad_line_in_a_gzipped_file_is_named(folder: Path) -> None:
    (folder / "queries.jsonl").write_text(jsonl(QUERY), encoding="utf-8")
    (folder / "tools.jsonl.gz").write_bytes(gzip.compress(jsonl(TOOL).encode() + b"nonsense\n"))
    with pytest.raises(Invalid, match=r"tools\.jsonl.*line 2"):
        read_set(folder)


@pytest.mark.req("X-03")
@pytest.mark.parametrize("lacking", ["query", "relevant"])
def test_a_query_that_lacks_a_field_is_refused_naming_it(folder: Path, lacking: str) -> None:
    row = {name: value for name, value in QUERY.items() if name != lacking}
    with pytest.raises(Invalid, match=lacking):
        tool_set(folder, QUERY, row)


@pytest.mark.req("X-03")
@pytest.mark.parametrize("lacking", ["id", "server", "name"])
def test_a_tool_that_lacks_a_field_is_refused_naming_it(folder: Path, lacking: str) -> None:
    row = {name: value for name, value in TOOL.items() if name != lacking}
    with pytest.raises(Invalid, match=lacking):
        tool_set(folder, QUERY, tools=jsonl(row))


@pytest.mark.req("X-03")
@pytest.mark.parametrize("lacking", ["id", "text"])
def test_a_document_that_lacks_a_field_is_refused_naming_it(folder: Path, lacking: str) -> None:
    row = {name: value for name, value in DOCUMENT.items() if name != lacking}
    with pytest.raises(Invalid, match=lacking):
        document_set(folder, GRADED, documents=jsonl(row))


@pytest.mark.req("X-03")
def test_a_line_that_is_not_a_json_object_is_refused(folder: Path) -> None:
    with pytest.raises(Invalid, match="line 2"):
        tool_set(folder, QUERY, ["read it", ["fs/read"]])


@pytest.mark.req("X-03")
def test_a_file_that_is_not_utf_8_is_refused(folder: Path) -> None:
    (folder / "queries.jsonl").write_bytes('{"query": "é", "relevant": []}\n'.encode("latin-1"))
    with pytest.raises(Invalid, match=r"queries\.jsonl"):
        read_set(folder)


@pytest.mark.req("X-03")
def test_a_gz_file_that_is_not_gzipped_is_refused(folder: Path) -> None:
    (folder / "queries.jsonl").write_text(jsonl(QUERY), encoding="utf-8")
    (folder / "tools.jsonl.gz").write_text(jsonl(TOOL), encoding="utf-8")
    with pytest.raises(Invalid, match=r"tools\.jsonl"):
        read_set(folder)


@pytest.mark.req("X-03")
@pytest.mark.parametrize(
    ("tool", "query", "message"),
    [
        ({"id": "t", "server": "s", "name": 5}, {"query": "q", "relevant": ["t"]}, "invalid value of name"),
        (
            {"id": "t", "server": "s", "name": "n", "input_schema": "x"},
            {"query": "q", "relevant": ["t"]},
            "input_schema",
        ),
        ({"id": "t", "server": "s", "name": "n"}, {"query": 5, "relevant": ["t"]}, "invalid value of query"),
        ({"id": "t", "server": "s", "name": "n"}, {"query": "q", "relevant": 5}, "invalid value of relevant"),
        ({"id": "t", "server": "s", "name": "n"}, {"query": "q", "relevant": []}, "no query with an answer"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(
    tmp_path: Path, tool: dict[str, object], query: dict[str, object], message: str
) -> None:
    (tmp_path / "tools.jsonl").write_text(json.dumps(tool), encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text(json.dumps(query), encoding="utf-8")
    with pytest.raises(Invalid, match=message):
        read_set(tmp_path)
