"""A request is cut where it asks for something else, and nowhere else."""

from __future__ import annotations

import pytest

from toolscript.retrieval.text.clauses import split_clauses

pytestmark = pytest.mark.req("Q-02")


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in split_clauses(text)]


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        (
            "read report.csv, make a bar chart, post it to slack and open a jira ticket",
            ["read report.csv", "make a bar chart", "post it to slack", "open a jira ticket"],
        ),
        ("create an issue, and then send a message", ["create an issue", "send a message"]),
        ("create a branch and push it to origin", ["create a branch", "push it to origin"]),
        ("I need to check my calendar and find a free slot", ["I need to check my calendar", "find a free slot"]),
        ("Take a screenshot. Then send it to Bob.", ["Take a screenshot.", "Then send it to Bob."]),
        ("please commit my changes and open a pull request", ["please commit my changes", "open a pull request"]),
        ("- create a repository\n- add a file", ["- create a repository", "add a file"]),
    ],
)
def test_verbs_with_objects_of_their_own_are_clauses(text: str, clauses: list[str]) -> None:
    assert split(text) == clauses


@pytest.mark.parametrize(
    "text",
    [
        "read and write files",
        "create, read and delete files",
        "create a branch and push it",
        "read a file and mail it",
        "translate the text and summarize it",
        "email Ann, Bob and Carl",
        "email Ann, Mark and Will",
        "list issues and pull requests",
        "show my posts, comments and search results",
        "search and replace text",
        "find and book a hotel in Rome",
        "read a file and write a file",
        "move the file and the folder to the trash",
        "buy milk, bread and eggs",
        'write "read the book, buy a car and sell a house" to notes.txt',
        "rename read_file and write_file",
        "search_and_replace",
        "weather",
        "Lies die Datei und schicke sie an Ada",
        "",
        ", and then",
    ],
)
def test_lists_names_and_what_is_done_to_one_thing_stay_together(text: str) -> None:
    assert split(text) == [text]
