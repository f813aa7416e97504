"""Groups of items are named by words that a person would choose."""

from __future__ import annotations

import pytest

from toolscript.domain.catalog import Item
from toolscript.retrieval.text.themes import Theme, find_themes

pytestmark = pytest.mark.req("H-12")

MAIL = [
    Item("post", "send_mail", "Send a mail to somebody."),
    Item("post", "read_mail", "Read the mails of a folder."),
    Item("post", "search_mail", "Search all mails."),
]
REVIEWS = [
    Item("hub", "createPullRequest", "Create a pull request on GitHub."),
    Item("hub", "mergePullRequest", "Merge a pull request on GitHub."),
    Item("hub", "listPullRequests", "List the pull requests of a GitHub repository."),
]


def names(*groups: list[Item]) -> list[str]:
    return [next(theme.headings(), "") for theme in find_themes(groups)]


def test_a_group_is_named_by_words_that_only_its_items_have() -> None:
    assert find_themes([MAIL, REVIEWS])[0].topics[0] == "mail"


def test_two_words_can_be_one_topic_and_product_names_keep_their_capitals() -> None:
    assert names(MAIL, REVIEWS)[1] == "Pull Request & GitHub"


def test_generic_words_name_no_group() -> None:
    group = [
        Item("s", "get_invoice", "Use this tool to get the details of an invoice."),
        Item("s", "update_invoice", "Use this tool to update a given invoice, for example its parameters."),
    ]
    assert names(group, MAIL)[0] == "Invoice"


def test_the_usual_form_is_shown_and_not_the_stem() -> None:
    group = [Item("s", "list_companies"), Item("s", "find_companies"), Item("s", "get_company")]
    assert names(group, MAIL)[0] == "Companies"


def test_a_word_of_a_servers_name_counts_only_if_items_have_it_too() -> None:
    group = [Item("acme__mcp-notes", "add_note", "Add a note."), Item("acme__mcp-notes", "read_note", "Read a note.")]
    assert "acme" not in " ".join(find_themes([group, MAIL])[0].topics).lower()
    spoken = [Item("acme__mcp", "add_note", "Add an Acme note."), Item("acme__mcp", "read_note", "Read an Acme note.")]
    assert "acme" in " ".join(find_themes([spoken, MAIL])[0].topics).lower()


def test_long_words_in_capitals_are_not_abbreviations() -> None:
    group = [Item("s", "a", "CAUTIOUS PDF reader"), Item("s", "b", "CAUTIOUS PDF viewer"), Item("s", "c", "A PDF")]
    assert find_themes([group, MAIL])[0].topics == ("cautious PDF",)


def test_identifiers_in_descriptions_are_ignored() -> None:
    group = [Item("s", "a_ticket", "Takes teamId and maxResults."), Item("s", "b_ticket", "Takes teamId, maxResults.")]
    assert find_themes([group, MAIL])[0].topics == ("ticket",)


def test_a_word_of_a_single_item_is_not_a_topic() -> None:
    group = [*MAIL, Item("zoo", "feed_giraffe", "Feed the giraffe.")]
    assert "giraffe" not in find_themes([group, REVIEWS])[0].topics


def test_further_names_follow_in_case_the_first_is_taken() -> None:
    theme = Theme(("jira", "issue", "sprint"), (1.0, 0.5, 0.1))
    assert list(theme.headings()) == ["Jira & Issue", "Jira", "Jira & Issue", "Jira & Sprint"]


def test_a_group_without_words_has_no_name() -> None:
    assert names([Item("1", "2"), Item("1", "3")], MAIL)[0] == ""


def test_no_groups_have_no_themes() -> None:
    assert find_themes([]) == []
