"""A folder of pages becomes a book that is read from its beginning to its end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from toolscript.services.ingest.reading_order import order_pages

pytestmark = pytest.mark.req("K-06")


def put(folder: Path, pages: dict[str, str]) -> list[str]:
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    ordered = order_pages([folder / name for name in sorted(pages)])
    return [each.relative_to(folder).as_posix() for each in ordered]


def test_without_a_first_page_numbers_in_names_are_compared_as_numbers(tmp_path: Path) -> None:
    assert put(tmp_path, {"page 10.md": "", "page 2.md": "", "Page 1.md": ""}) == [
        "Page 1.md",
        "page 2.md",
        "page 10.md",
    ]


def test_next_links_give_the_order(tmp_path: Path) -> None:
    pages = {
        "index.html": '<head><link rel="home" href="index.html"/><link rel="next" href="preface.html"></head>',
        "preface.html": "<LINK href='deep/b%20b.html#top' rel='next'>",
        "deep/b b.html": '<link rel="next" href="../a.html">',
        "a.html": '<link rel="next" href="preface.html">',
        "aside.html": "",
    }
    assert put(tmp_path, pages) == ["index.html", "preface.html", "deep/b b.html", "a.html", "aside.html"]


def test_without_next_links_the_links_of_the_first_page_give_the_order(tmp_path: Path) -> None:
    contents = '<a class="x" href="z.html#one">Z</a> <a href="http://host/a.html">A</a> <a href="../b.html">B</a>'
    pages = {"index.html": contents + '<a href="m.html">M</a><a href="z.html">Z</a>', "a.html": "", "b.html": ""}
    assert put(tmp_path, {**pages, "m.html": "", "z.html": ""}) == [
        "index.html",
        "z.html",
        "m.html",
        "a.html",
        "b.html",
    ]


def test_links_of_markdown_are_followed_too(tmp_path: Path) -> None:
    pages = {"SUMMARY.md": "- [Last](z.md)\n- [First](a.md)\n- [Bad](http://[)\n", "a.md": "", "z.md": ""}
    assert put(tmp_path, pages) == ["SUMMARY.md", "z.md", "a.md"]


def test_the_first_page_is_the_uppermost_one(tmp_path: Path) -> None:
    pages = {"a/index.html": "", "b/index.html": '<a href="../a/index.html">', "index.html": '<a href="b/index.html">'}
    assert put(tmp_path, pages) == ["index.html", "b/index.html", "a/index.html"]


@pytest.mark.parametrize(
    "first",
    ["index.en.html", "index.pt-br.html", "index.zh_CN.xhtml", "Index.HTM", "toc.html", "default.html", "toc.de.html"],
)
def test_the_first_page_may_have_a_language_and_another_extension(tmp_path: Path, first: str) -> None:
    pages = {"a.en.html": "", first: '<link rel="next" href="z.en.html">', "z.en.html": ""}
    assert put(tmp_path, pages) == [first, "z.en.html", "a.en.html"]


def test_of_several_first_pages_the_one_without_a_language_is_first(tmp_path: Path) -> None:
    pages = {"index.de.html": "", "index.html": '<a href="z.html">', "a.html": "", "z.html": ""}
    assert put(tmp_path, pages)[:2] == ["index.html", "z.html"]


def test_a_name_that_only_starts_like_one_of_a_first_page_is_not_first(tmp_path: Path) -> None:
    pages = {"a.html": "", "index.of.names.html": '<a href="z.html">', "indexes.html": "", "z.html": ""}
    assert put(tmp_path, pages) == sorted(pages)


def test_no_page_is_lost_or_read_twice_whatever_the_links_say(tmp_path: Path) -> None:
    pages = {f"{n}.html": f'<link rel="next" href="{(n + 1) % 3}.html">' for n in range(3)}
    pages["index.html"] = '<link rel="next" href="index.html"><a href="nowhere.html"><a href="">'
    assert sorted(put(tmp_path, pages)) == sorted(pages)


def test_a_first_page_that_cannot_be_read_is_ordered_without_its_links(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text("")
    gone = tmp_path / "index.html"
    assert order_pages([tmp_path / "b.html", gone]) == [gone, tmp_path / "b.html"]
    assert order_pages([]) == []


def test_a_page_of_a_stranger_stops_nothing(tmp_path: Path) -> None:
    """A tag of one long word took minutes, in which nothing else ran; a pipe in place of a page is not opened."""
    began = time.process_time()
    tag = "<a " + "a" * 2_000_000 + ' x="1" href="b.html">'
    assert put(tmp_path, {"index.html": tag, "a.html": "", "b.html": ""}) == ["index.html", "b.html", "a.html"]
    assert time.process_time() - began < 20
    (tmp_path / "index.html").unlink()
    os.mkfifo(tmp_path / "index.html")
    assert order_pages([tmp_path / "b.html", tmp_path / "index.html"])[0] == tmp_path / "index.html"
