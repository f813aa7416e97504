"""Citations have the known parts of a source in the usual order."""

from __future__ import annotations

from typing import Any

import pytest

from toolscript.surfaces.json.citations import format_citation

pytestmark = pytest.mark.req("K-02")


def hit(title: str = "Tides", authors: list[str] | None = None, **position: Any) -> dict[str, Any]:
    where = {"chapter": None, "section": None, "page": None, **position}
    return {"source": {"source_id": "s", "chunk_id": "c", "title": title, "authors": authors or [], "position": where}}


def test_all_known_parts_are_cited() -> None:
    response = hit(
        "The Debian Administrator's Handbook",
        ["Raphaël Hertzog", "Roland Mas"],
        chapter="6 Maintenance and Updates",
        section="apt",
        page=123,
    )
    assert format_citation(response) == (
        "Raphaël Hertzog and Roland Mas, The Debian Administrator's Handbook, chapter 6 “Maintenance and Updates”, "
        "section “apt”, p. 123"
    )


@pytest.mark.parametrize(
    ("position", "cited"),
    [
        ({}, "Tides"),
        ({"page": 0}, "Tides, p. 0"),
        ({"chapter": "Neaps"}, "Tides, chapter “Neaps”"),
        ({"section": "Springs", "page": 7}, "Tides, section “Springs”, p. 7"),
        ({"chapter": "Neaps", "line": 12}, "Tides, chapter “Neaps”, line 12"),
        ({"chapter": "", "section": ""}, "Tides"),
        ({"chapter": "Neaps", "section": "Neaps"}, "Tides, chapter “Neaps”"),
        ({"chapter": "Tides", "section": "Neaps"}, "Tides, section “Neaps”"),
    ],
)
def test_unknown_parts_are_left_out(position: dict[str, Any], cited: str) -> None:
    assert format_citation(hit(**position)) == cited


@pytest.mark.parametrize(
    ("authors", "response"),
    [
        (["Ada"], "Ada, "),
        (["Ada", "Bo"], "Ada and Bo, "),
        (["Ada", "Bo", "Cy"], "Ada, Bo and Cy, "),
        (["Ada", "Bo", "Cy", "Di"], "Ada et al., "),
    ],
)
def test_more_than_three_authors_are_shortened(authors: list[str], response: str) -> None:
    assert format_citation(hit(authors=authors)) == f"{response}Tides"


def test_a_removed_source_is_cited_as_unknown() -> None:
    assert format_citation(hit("Unknown Source")) == "Unknown Source"


@pytest.mark.parametrize(
    ("chapter", "response"),
    [
        ("Chapter 6. Maintenance and Updates", "chapter 6 “Maintenance and Updates”"),
        ("CHAPTER 3:\n The  Sea", "chapter 3 “The Sea”"),
        ("6.2.1. Initialization", "chapter 6.2.1 “Initialization”"),
        ("4.3 changelog", "chapter 4.3 “changelog”"),
        ("2 Results", "chapter 2 “Results”"),
        ("Appendix A: Derivatives", "appendix A “Derivatives”"),
        ("Part II — The Moon", "part II “The Moon”"),
        ("IV. Of tides", "chapter IV “Of tides”"),
        ("A.1. Letters", "chapter A.1 “Letters”"),
        ("Chapter 5", "chapter 5"),
        ("7", "chapter 7"),
        ("3 ways to drown", "chapter “3 ways to drown”"),
        ("1.5GB of tides", "chapter “1.5GB of tides”"),
        ("2001: A Space Odyssey", "chapter “2001: A Space Odyssey”"),
        ("C. elegans", "chapter “C. elegans”"),
        ("I sail", "chapter “I sail”"),
        ("Part of it", "chapter “Part of it”"),
    ],
)
def test_only_numbers_of_headings_are_moved_to_the_front(chapter: str, response: str) -> None:
    assert format_citation(hit(chapter=chapter)) == f"Tides, {response}"


def test_a_citation_is_one_line() -> None:
    assert format_citation(hit("Tides\nand\tmoons", ["Ada\nLovelace"])) == "Ada Lovelace, Tides and moons"
