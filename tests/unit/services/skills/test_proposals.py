"""Proposals of skills for existing tools, named by words or by a language model."""

from __future__ import annotations

import asyncio
import logging
import re
import unicodedata
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.fixtures.databases import open_memory_database
from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.domain.catalog import Assignment, Item, Origin, Skill, SuggestionStatus
from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed
from toolscript.domain.prompts import Prompt
from toolscript.domain.search import Point, SimilarityRange, Terms
from toolscript.ports.models import Embedder
from toolscript.retrieval.text.item_text import build_item_text
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.item_points import TOOLS, tools_collection
from toolscript.services.skills.proposals import MAX_PROPOSALS, Proposal, ProposeSkills

pytestmark = pytest.mark.req("H-12")

MAIL = [Item("mail", f"{verb}_mail", "mail letter post") for verb in ("send", "read", "drop")]
CLOCK = [Item("clock", f"{verb}_time", "time clock hour") for verb in ("tell", "set")]
CLEAR = {"calendar", "docker", "email", "github", "postgres", "weather"}
LONER = Item("zoo", "feed_giraffe", "giraffe")

Answer = Callable[[Prompt], dict[str, Any]]


class ScriptedModel:
    """A language model with given answers."""

    model = "scripted"

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.questions: list[Prompt] = []

    async def answer(self, prompt: Prompt) -> dict[str, Any]:
        self.questions.append(prompt)
        return self._answer(prompt)

    async def close(self) -> None:
        return None


class SyncedCatalogue:
    """A catalogue and its index."""

    def __init__(self, embedder: Embedder) -> None:
        database = open_memory_database()
        self.item_store, self.skill_store = SqlItems(database), SqlSkills(database)
        self.index = MemoryIndex()
        self.embedder = embedder

    async def fill(self, items: list[Item]) -> None:
        await self.index.open(tools_collection(self.embedder.model, self.embedder.dimensions))
        await self.item_store.save_items([(item, frozenset()) for item in items])
        vectors = await self.embedder.embed_documents([build_item_text(item) for item in items])
        points = [Point(i.id, v, Terms(), {}) for i, v in zip(items, vectors, strict=True)]
        await self.index.upsert(TOOLS, points)

    def propose(self, answer: Answer | None = None) -> ProposeSkills:
        return ProposeSkills(
            self.item_store, self.skill_store, self.index, self.embedder, ScriptedModel(answer) if answer else None
        )

    async def list_queued(self) -> list[str]:
        return [s.name for s in await self.skill_store.list_suggestions(SuggestionStatus.PENDING)]


@pytest.fixture
async def catalogue() -> AsyncIterator[SyncedCatalogue]:
    """A small catalogue with an embedder that compares words."""
    made = SyncedCatalogue(HashedEmbedder(64))
    await made.fill([*MAIL, *CLOCK])
    yield made
    await made.item_store.close()


@pytest.fixture
async def demo() -> AsyncIterator[SyncedCatalogue]:
    """The demo catalogue with an embedder that compares words."""
    made = SyncedCatalogue(HashedEmbedder(64))
    await made.fill(load_demo_items())
    yield made
    await made.item_store.close()


@pytest.fixture
async def clear(tool_model: OnnxEmbedder) -> AsyncIterator[SyncedCatalogue]:
    """The tools of six different servers: their groups are the same on every processor."""
    made = SyncedCatalogue(tool_model)
    await made.fill([item for item in load_demo_items() if item.server in CLEAR])
    yield made
    await made.item_store.close()


def holding(proposals: list[Proposal], item_id: str) -> Proposal:
    return next(p for p in proposals if item_id in p.items)


def is_one_clean_line(text: str) -> bool:
    return not any(unicodedata.category(c)[0] == "C" for c in text) and text == " ".join(text.split())


@pytest.mark.slow
async def test_similar_tools_are_proposed_together_under_a_readable_name(
    clear: SyncedCatalogue,
) -> None:
    proposals = await clear.propose().propose(count=len(CLEAR))
    for item_id, word in {
        "calendar__create_event": "Calendar",
        "weather__current_weather": "Weather",
        "email__send_email": "Email",
        "github__create_issue": "GitHub",
        "docker__container_logs": "Docker",
        "postgres__run_query": "Postgres",
    }.items():
        proposal = holding(proposals, item_id)
        assert word in proposal.skill.name
        assert {i.partition("__")[0] for i in proposal.items} == {item_id.partition("__")[0]}


@pytest.mark.slow
async def test_a_proposal_is_a_valid_skill(demo: SyncedCatalogue) -> None:
    proposals = await demo.propose().propose()
    for skill in (p.skill for p in proposals):
        assert re.fullmatch("[a-z][a-z0-9_]*", skill.id)
        assert skill.description.startswith("Tools for ")
        assert skill.description.endswith(".")
        assert skill.keywords
        assert skill.examples
    assert len({p.skill.id for p in proposals}) == len({p.skill.name for p in proposals}) == len(proposals)


@pytest.mark.slow
async def test_a_proposal_is_described_by_its_own_words_and_its_central_tools(clear: SyncedCatalogue) -> None:
    calendar = holding(await clear.propose().propose(count=len(CLEAR)), "calendar__create_event")
    assert {"event", "calendar"} <= set(calendar.skill.keywords)
    assert calendar.skill.examples[0] == calendar.items[0].removeprefix("calendar__")
    assert calendar.skill.examples[0] in calendar.skill.description


async def test_a_group_without_a_theme_gets_the_words_of_its_names_as_keywords(
    catalogue: SyncedCatalogue,
) -> None:
    (all_of_them,) = await catalogue.propose().propose(count=1)
    assert {"mail", "time"} <= set(all_of_them.skill.keywords)


@pytest.mark.slow
async def test_a_nearly_equal_existing_skill_is_named(clear: SyncedCatalogue) -> None:
    await clear.skill_store.save_skills(
        [
            Skill("weather", "Weather", "Current weather and forecasts for a place."),
            Skill("bees", "Bee Keeping", "Hives, honey and swarms."),
        ]
    )
    proposals = await clear.propose().propose(count=len(CLEAR))
    weather = holding(proposals, "weather__current_weather")
    assert weather.nearest_skill == "weather"
    assert 0.8 <= weather.nearness <= 1
    docker = holding(proposals, "docker__container_logs")
    assert (docker.nearest_skill, docker.nearness) == (None, 0.0)


@pytest.mark.req("H-07")
async def test_nearness_is_measured_by_the_range_for_skills() -> None:
    class Narrow(HashedEmbedder):
        similarity = SimilarityRange(0.0, 1.0, skills=0.5)

    nearest = []
    for embedder in (HashedEmbedder(64), Narrow(64)):
        made = SyncedCatalogue(embedder)
        await made.fill(MAIL)
        await made.skill_store.save_skills([Skill("mail", "Mail", "letter stamps")])
        (proposal,) = await made.propose().propose(count=1)
        nearest.append(proposal.nearest_skill)
        await made.item_store.close()
    assert nearest == [None, "mail"]


@pytest.mark.slow
async def test_the_same_tools_give_the_same_proposals(demo: SyncedCatalogue) -> None:
    assert await demo.propose().propose() == await demo.propose().propose()


@pytest.mark.slow
async def test_no_item_is_in_two_proposals_and_the_largest_comes_first(demo: SyncedCatalogue) -> None:
    proposals = await demo.propose().propose(count=8)
    assert 1 < len(proposals) <= 8
    sizes = [len(p.items) for p in proposals]
    assert sizes == sorted(sizes, reverse=True)
    assert len({i for p in proposals for i in p.items}) == sum(sizes)
    assert all(0 < p.cohesion <= 1 for p in proposals)


async def test_an_id_that_is_taken_gets_a_number(catalogue: SyncedCatalogue) -> None:
    first = holding(await catalogue.propose().propose(count=2), "mail__send_mail").skill
    await catalogue.skill_store.save_skills([replace(first, is_active=False)])
    assert holding(await catalogue.propose().propose(count=2), "mail__send_mail").skill.id == f"{first.id}_2"


async def test_a_single_tool_is_left_out(catalogue: SyncedCatalogue) -> None:
    await catalogue.fill([LONER])
    proposals = await catalogue.propose().propose(count=3)
    assert {i for p in proposals for i in p.items} == {i.id for i in [*MAIL, *CLOCK]}


async def test_single_tools_are_proposed_when_there_are_no_groups(catalogue: SyncedCatalogue) -> None:
    proposals = await catalogue.propose().propose(count=MAX_PROPOSALS)
    assert [len(p.items) for p in proposals] == [1] * 5
    assert len({p.skill.name for p in proposals}) == 5


async def test_on_request_only_tools_without_a_skill_are_grouped(catalogue: SyncedCatalogue) -> None:
    await catalogue.skill_store.save_skills([Skill("clocks", "Clocks")])
    for item in CLOCK:
        await catalogue.skill_store.assign(item.id, [Assignment("clocks", 1.0, True, Origin.HUMAN)])
    (only,) = await catalogue.propose().propose(only_waiting=True)
    assert set(only.items) == {i.id for i in MAIL}
    for item in MAIL:
        await catalogue.skill_store.assign(item.id, [Assignment("clocks", 1.0, True, Origin.HUMAN)])
    assert await catalogue.propose().propose(only_waiting=True) == []


async def test_vanished_tools_are_ignored(catalogue: SyncedCatalogue) -> None:
    await catalogue.item_store.deactivate([i.id for i in CLOCK])
    assert {i for p in await catalogue.propose().propose() for i in p.items} == {i.id for i in MAIL}


async def test_proposals_are_queued_on_request_only(catalogue: SyncedCatalogue) -> None:
    await catalogue.propose().propose()
    assert await catalogue.list_queued() == []


async def test_repeated_proposals_are_queued_once(catalogue: SyncedCatalogue) -> None:
    proposals = await catalogue.propose().propose(count=2, queue=True)
    await catalogue.propose().propose(count=2, queue=True)
    assert sorted(await catalogue.list_queued()) == sorted(p.skill.name for p in proposals)
    queued = {s.name: s for s in await catalogue.skill_store.list_suggestions()}
    for skill in (p.skill for p in proposals):
        suggestion = queued[skill.name]
        assert (suggestion.description, suggestion.keywords, suggestion.examples) == (
            skill.description,
            skill.keywords,
            skill.examples,
        )


async def test_rejected_suggestions_and_existing_skills_are_not_queued(catalogue: SyncedCatalogue) -> None:
    first, second = await catalogue.propose().propose(count=2, queue=True)
    for suggestion in await catalogue.skill_store.list_suggestions():
        assert suggestion.number is not None
        await catalogue.skill_store.review_suggestion(suggestion.number, SuggestionStatus.REJECTED)
    await catalogue.propose().propose(count=2, queue=True)
    assert await catalogue.list_queued() == []

    fresh = SyncedCatalogue(catalogue.embedder)
    await fresh.fill([*MAIL, *CLOCK])
    await fresh.skill_store.save_skills([Skill("other", first.skill.name.upper())])
    await fresh.propose().propose(count=2, queue=True)
    assert await fresh.list_queued() == [second.skill.name]
    await fresh.item_store.close()


async def test_an_empty_catalogue_gives_no_proposals() -> None:
    catalogue = SyncedCatalogue(HashedEmbedder(8))
    await catalogue.fill([])
    assert await catalogue.propose().propose() == []
    assert await ProposeSkills(catalogue.item_store, catalogue.skill_store, catalogue.index, None).propose() == []
    await catalogue.item_store.close()


async def test_without_a_model_the_error_says_what_to_do(catalogue: SyncedCatalogue) -> None:
    with pytest.raises(Unavailable, match=r"no embedding model.*TOOLSCRIPT_SEARCH_MODEL.*index rebuild"):
        await ProposeSkills(catalogue.item_store, catalogue.skill_store, catalogue.index, None).propose()


async def test_without_vectors_the_error_says_what_to_do(catalogue: SyncedCatalogue) -> None:
    await catalogue.index.delete(TOOLS, [i.id for i in [*MAIL, *CLOCK]])
    with pytest.raises(Unavailable, match=r"no vectors.*index rebuild"):
        await catalogue.propose().propose()


@pytest.mark.parametrize("count", [0, MAX_PROPOSALS + 1])
async def test_a_count_out_of_range_is_refused(catalogue: SyncedCatalogue, count: int) -> None:
    with pytest.raises(Invalid, match="1 to 200"):
        await catalogue.propose().propose(count=count)


async def test_a_language_model_names_the_groups(catalogue: SyncedCatalogue) -> None:
    model = ScriptedModel(
        lambda prompt: {
            "name": "Letters" if "send_mail" in prompt.text else "Hours",
            "description": "Writes letters.",
            "keywords": ["Post", "post", "stamp"],
        }
    )
    proposals = await ProposeSkills(
        catalogue.item_store, catalogue.skill_store, catalogue.index, catalogue.embedder, model
    ).propose(count=2)
    letters = holding(proposals, "mail__send_mail").skill
    assert (letters.id, letters.name, letters.description) == ("letters", "Letters", "Writes letters.")
    assert letters.keywords == ("post", "stamp")
    assert set(letters.examples) == {"send_mail", "read_mail", "drop_mail"}
    assert len(model.questions) == 2
    assert all(set(p.answer["required"]) == {"name", "description", "keywords"} for p in model.questions)


async def test_two_groups_of_one_name_get_different_names(catalogue: SyncedCatalogue) -> None:
    proposals = await catalogue.propose(lambda _: {"name": "Things", "description": "", "keywords": []}).propose(
        count=2
    )
    names = [p.skill.name for p in proposals]
    assert names[0] == "Things"
    assert names[1].startswith("Things: ")
    assert all(p.skill.description.startswith("Tools for ") and p.skill.keywords for p in proposals)


async def test_names_from_a_language_model_are_clean_short_lines(catalogue: SyncedCatalogue) -> None:
    answers = {
        "name": "Mail\n\u202e & \x1b[31mPost\x00",
        "description": "A\r\nB " + "long " * 400,
        "keywords": ["a\tb", "", "x" * 500, 7, *map(str, range(30))],
    }
    (proposal,) = await catalogue.propose(lambda _: answers).propose(count=1)
    skill = proposal.skill
    assert skill.name == "Mail & [31mPost"
    assert all(map(is_one_clean_line, [skill.name, skill.description, *skill.keywords]))
    assert len(skill.description) <= 400
    assert len(skill.keywords) <= 8
    assert max(map(len, skill.keywords)) <= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"name": "\x00\n", "description": "x", "keywords": []},
        {"name": ["Mail"], "description": "x", "keywords": []},
    ],
)
async def test_without_a_usable_name_in_the_answer_the_words_name_the_group(
    catalogue: SyncedCatalogue, answers: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        named = await catalogue.propose(lambda _: answers).propose(count=2)
    assert named == await catalogue.propose().propose(count=2)
    assert "proposals_named_by_words" in caplog.messages


@pytest.mark.parametrize("error", [Unavailable("gone"), UpstreamFailed("nonsense"), Invalid("no such model")])
async def test_if_the_language_model_fails_the_words_name_the_groups(
    catalogue: SyncedCatalogue, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Prompt) -> dict[str, Any]:
        raise error

    with caplog.at_level(logging.WARNING):
        named = await catalogue.propose(fail).propose(count=2)
    assert named == await catalogue.propose().propose(count=2)
    (record,) = [r for r in caplog.records if r.message == "proposals_named_by_words"]
    assert (record.__dict__["groups"], record.__dict__["reason"]) == (2, str(error))


async def test_an_unavailable_language_model_is_not_awaited_for_every_group(
    catalogue: SyncedCatalogue, caplog: pytest.LogCaptureFixture
) -> None:
    class Fading(ScriptedModel):
        """Answers once, fails once, then never responds."""

        async def answer(self, prompt: Prompt) -> dict[str, Any]:
            answers = await super().answer(prompt)
            if len(self.questions) == 2:
                raise Unavailable("gone")
            if len(self.questions) > 2:
                await asyncio.Event().wait()
            return answers

    model = Fading(lambda _: {"name": "Things", "description": "", "keywords": []})
    async with asyncio.timeout(60):
        proposals = await ProposeSkills(
            catalogue.item_store, catalogue.skill_store, catalogue.index, catalogue.embedder, model
        ).propose(count=MAX_PROPOSALS)
    assert len(proposals) == 5
    assert [p.skill.name for p in proposals].count("Things") == 1
    (record,) = [r for r in caplog.records if r.message == "proposals_named_by_words"]
    assert (record.__dict__["groups"], record.__dict__["reason"]) == (4, "gone")


async def test_tools_with_blank_or_control_characters_as_names_still_get_names() -> None:
    catalogue = SyncedCatalogue(HashedEmbedder(8))
    await catalogue.fill(
        [Item("s\n", "a\x1b\nb", "\u202e"), Item("1", "2"), Item("日本", "天気", "東京の天気"), Item("-", "-")]
    )
    for count in (1, 4):
        for skill in (p.skill for p in await catalogue.propose().propose(count=count)):
            assert skill.name
            assert re.fullmatch("[a-z][a-z0-9_]*", skill.id)
            assert all(map(is_one_clean_line, [skill.name, skill.description, *skill.keywords, *skill.examples]))
    await catalogue.item_store.close()
