"""A sentence that mentions a name is told from one that uses the same word."""

from __future__ import annotations

import pytest

from toolscript.retrieval.text.mentions import find_mentions
from toolscript.retrieval.text.words import words

NAMES = {"search", "list", "get", "fetch", "lrem", "read file", "git status"}
RARE = {"lrem"}

pytestmark = pytest.mark.req("S-02")


def build_key(text: str) -> str:
    return "".join(words(text))


def find(query: str) -> set[str]:
    return set(find_mentions(query, build_key, set(map(build_key, NAMES)), RARE.__contains__))


@pytest.mark.parametrize(
    ("query", "mentioned"),
    [
        ("use lrem please", "lrem"),
        ("remove the key with LREM, please", "LREM"),
        ("which arguments has lrem?", "lrem"),
        ('"lrem" from the left', "lrem"),
        ("use fetch to get example.com", "fetch"),
        ("please call search.", "search"),
        ("with the search tool find a paper", "search"),
        ("ask the tool called list", "list"),
        ("what does `get` do?", "get"),
        ("use read file to see my notes", "read file"),
        ("the git status command, now", "git status"),
        ('use "search" for cats', "search"),
    ],
)
def test_names_are_found_where_a_sentence_mentions_them(query: str, mentioned: str) -> None:
    assert find(query) == {mentioned}


@pytest.mark.parametrize(
    "query",
    [
        "search for papers about cats",
        "list my open issues",
        "get the list of users",
        "fetch the page at example.com",
        "use search engines to find a paper",
        "call the list of customers",
        "please read file x",
        "is there a list tool?",
        'create a branch called "list"',
        "rename the branch to `list`",
        'send the word "search" to Ada',
        "open notes/lrem and lrem.txt, or https://x.org/lrem",
        "@lrem #lrem --lrem lrem@example.org",
        "",
        "?!",
    ],
)
def test_ordinary_words_values_and_paths_are_no_names(query: str) -> None:
    assert find(query) == set()
