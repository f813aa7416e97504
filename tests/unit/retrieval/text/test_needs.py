"""Long requests are cut into needs that together are the request."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import scale_examples
from toolscript.retrieval.text.needs import MAX_NEEDS, MIN_CHARACTERS, split_needs
from toolscript.retrieval.text.words import words

pytestmark = pytest.mark.req("S-01")

TASK = (
    "Our treasury made an odd payment last week. Look through the history of its transactions, pick the biggest one. "
    "Then tell me which of the owners signed it. Write a short summary as a new page in the team's wiki, and finally "
    "send the address of that page to the finance channel."
)
# Words that separate clauses and are dropped where a sentence is cut.
CONNECTIVES = {"and", "then", "after", "that", "afterwards", "finally", "but", "so"}


def test_a_task_is_cut_into_its_steps() -> None:
    needs = split_needs(TASK)
    assert [need.split()[0] for need in needs] == ["Our", "Look", "Then", "Write", "send"]


def test_a_list_of_steps_is_cut_at_its_lines() -> None:
    steps = [
        f"{verb} the customers of the {region} region by their revenue"
        for verb in ("List", "Sort", "Mail", "Call")
        for region in ("north", "south")
    ]
    assert split_needs("\n".join(f"{n}. {step}" for n, step in enumerate(steps, start=1)))[1:] == steps[1:]
    assert split_needs("\n".join(f"- {step}" for step in steps))[1:] == steps[1:]


@pytest.mark.req("Q-02")
def test_a_short_request_is_cut_by_its_structure() -> None:
    text = "Read report.csv, make a bar chart, post it to slack and open a jira ticket"
    assert len(text) < MIN_CHARACTERS
    assert split_needs(text) == ["Read report.csv", "make a bar chart", "post it to slack", "open a jira ticket"]


def test_a_request_for_one_thing_has_no_parts() -> None:
    assert split_needs("Read the file. Then mail it.") == []
    assert split_needs("x" * 4 * MIN_CHARACTERS) == []


def test_a_remark_of_a_few_words_stays_with_its_neighbour() -> None:
    needs = split_needs(f"Please help. {TASK} Thanks a lot!")
    assert needs[0].startswith("Please help. Our treasury")
    assert needs[-1].endswith("Thanks a lot!")


@settings(max_examples=scale_examples(150), deadline=None)
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=120),
    st.sampled_from([". ", "\n", ", ", " and ", "; "]),
)
def test_needs_are_few_parts_of_the_text_in_order_and_lose_no_word(parts: list[str], separator: str) -> None:
    text = separator.join(parts)
    needs = split_needs(text)
    assert len(needs) <= MAX_NEEDS
    assert len(needs) != 1
    at = 0
    for need in needs:
        assert text.index(need, at) >= at
        at = text.index(need, at) + len(need)
    if needs:
        lost = set(words(text)) - set(words(" ".join(needs))) - CONNECTIVES
        assert all(word.isdigit() for word in lost)  # the number of a step in a list
