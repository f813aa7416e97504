"""The tools that an agent skill names: which are connected, and which are missing."""

from __future__ import annotations

import time

import pytest

from toolscript.domain.catalog import Item, ItemType
from toolscript.services.tools.named_tools import find_named_tools

pytestmark = pytest.mark.req("A-02")

TOOLS = ("git__git_log", "git__git_diff", "my-notes__search", "big query__run_sql")


def name(body: str = "", allowed: object = None) -> tuple[list[str], list[str]]:
    frontmatter = {} if allowed is None else {"allowed-tools": allowed}
    definition = {"frontmatter": frontmatter, "body": body}
    found = find_named_tools(Item("s", "a", type=ItemType.AGENT_SKILL, definition=definition), TOOLS)
    return found.connected, found.missing


@pytest.mark.parametrize(
    "allowed",
    [
        "Bash(git:*) mcp__git__git_log Read mcp__jira__find",
        "Bash(git log:*), mcp__git__git_log, mcp__jira__find",
        ["Bash", "mcp__git__git_log", "mcp__jira__find", 3],
    ],
)
def test_allowed_tools_are_read_in_every_form_and_tools_of_the_client_left_out(allowed: object) -> None:
    assert name(allowed=allowed) == (["git__git_log"], ["mcp__jira__find"])


@pytest.mark.parametrize(
    ("body", "connected", "missing"),
    [
        ("Call `git_diff` then stop.", ["git__git_diff"], []),
        ("Call git_diff then stop.", [], []),
        ("Use git__git_log.", ["git__git_log"], []),
        (
            "Use mcp__my_notes__search, then BigQuery:run_sql and Big_Query:run_sql.",
            ["big query__run_sql", "my-notes__search"],
            [],
        ),
        ("Use git__git_blame and mcp__jira__find.", [], ["git__git_blame", "mcp__jira__find"]),
        ("def __init__(self): self.__x__ = other__thing", [], []),
        ("See https://example.com:443 and 12:30.", [], []),
    ],
)
def test_names_in_the_text_are_found(body: str, connected: list[str], missing: list[str]) -> None:
    assert name(body) == (connected, missing)


def test_an_agent_skill_without_names_has_none() -> None:
    assert name() == name(allowed={"a": 1}) == ([], [])


@pytest.mark.req("X-11")
@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ("a." * 20_000, None),
        ("", "a(" * 32_000),
        ("a__b " * 20_000, " ".join(f"T{number}" for number in range(10_000))),
    ],
)
def test_hostile_texts_are_read_in_time_that_grows_with_their_length(body: str, allowed: str | None) -> None:
    began = time.process_time()
    assert name(body, allowed) == ([], [])
    assert time.process_time() - began < 2
