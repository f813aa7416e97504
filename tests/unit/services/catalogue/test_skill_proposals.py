"""Skills are proposed from the tools there are: by their own words, or named by a language model."""

from __future__ import annotations

import asyncio
import logging
import re
import unicodedata
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from toolscript.adapters.memory import HashedEmbedder, MemoryIndex
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.items import SqlItems
from toolscript.adapters.sql.skills import SqlSkills
from toolscript.domain.catalog import Assignment, Item, Origin, Skill, SuggestionStatus
from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed
from toolscript.domain.prompts import Prompt
from toolscript.domain.search import Point, Terms
from toolscript.ports.models import Embedder
from toolscript.retrieval.text.item_text import build_item_text
from toolscript.services.catalogue.demo import load_demo_items
from toolscript.services.catalogue.skill_proposals import MAX_NAME_LENGTH, MAX_PROPOSALS, Proposal, ProposeSkills
from toolscript.services.catalogue.tool_points import TOOLS, tools_collection

pytestmark = pytest.mark.req("H-12")

MAIL = [Item("mail", f"{verb}_mail", "mail letter post") for verb in ("send", "read", "drop")]
CLOCK = [Item("clock", f"{verb}_time", "time clock hour") for verb in ("tell", "set")]
CLEAR = {"calendar", "docker", "email", "github", "postgres", "weather"}
LONER = Item("zoo", "feed_giraffe", "giraffe")

Answer = Callable[[Prompt], dict[str, Any]]


class ScriptedModel:
    """A language model that says what the test has it say."""

    model = "scripted"

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[Prompt] = []

    async def answer(self, prompt: Prompt) -> dict[str, Any]:
        self.asked.append(prompt)
        return self._answer(prompt)

    async def close(self) -> None:
        return None


class House:
    """A catalogue and an index that hold the same items."""

    def __init__(self, embedder: Embedder) -> None:
        database = Database("sqlite://")
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

    async def queued(self) -> list[str]:
        return [s.name for s in await self.skill_store.list_suggestions(SuggestionStatus.PENDING)]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """A small one, with an embedder for which texts are alike that share words."""
    made = House(HashedEmbedder(64))
    await made.fill([*MAIL, *CLOCK])
    yield made
    await made.item_store.close()


@pytest.fixture
async def demo(minilm: OnnxEmbedder) -> AsyncIterator[House]:
    """The demo catalogue with the model that the package brings."""
    made = House(minilm)
    await made.fill(load_demo_items())
    yield made
    await made.item_store.close()


@pytest.fixture
async def clear(minilm: OnnxEmbedder) -> AsyncIterator[House]:
    """The tools of six servers that have little in common: their groups are the same on every processor."""
    made = House(minilm)
    await made.fill([item for item in load_demo_items() if item.server in CLEAR])
    yield made
    await made.item_store.close()


def holding(proposals: list[Proposal], item_id: str) -> Proposal:
    return next(p for p in proposals if item_id in p.items)


def is_one_clean_line(text: str) -> bool:
    return not any(unicodedata.category(c)[0] == "C" for c in text) and text == " ".join(text.split())


async def test_tools_that_belong_together_are_proposed_together_and_named_so_that_a_person_understands(
    clear: House,
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


async def test_a_proposal_is_a_skill_that_could_be_used_as_it_is(demo: House) -> None:
    proposals = await demo.propose().propose()
    for skill in (p.skill for p in proposals):
        assert re.fullmatch("[a-z][a-z0-9_]*", skill.id)
        assert skill.description.startswith("Tools for ")
        assert skill.description.endswith(".")
        assert skill.keywords
        assert skill.examples
    assert len({p.skill.id for p in proposals}) == len({p.skill.name for p in proposals}) == len(proposals)


async def test_a_proposal_is_described_by_its_own_words_and_its_most_central_tools(clear: House) -> None:
    calendar = holding(await clear.propose().propose(count=len(CLEAR)), "calendar__create_event")
    assert {"event", "calendar"} <= set(calendar.skill.keywords)
    assert calendar.skill.examples[0] == calendar.items[0].removeprefix("calendar__")
    assert calendar.skill.examples[0] in calendar.skill.description


async def test_a_group_without_a_word_of_its_own_gets_the_words_of_its_names_as_keywords(house: House) -> None:
    (all_of_them,) = await house.propose().propose(count=1)
    assert {"mail", "time"} <= set(all_of_them.skill.keywords)


async def test_an_existing_skill_that_nearly_is_the_proposed_one_is_named(clear: House) -> None:
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


async def test_the_same_tools_give_the_same_proposals(demo: House) -> None:
    assert await demo.propose().propose() == await demo.propose().propose()


async def test_every_item_is_in_one_proposal_at_most_and_the_largest_comes_first(demo: House) -> None:
    proposals = await demo.propose().propose(count=8)
    assert 1 < len(proposals) <= 8
    sizes = [len(p.items) for p in proposals]
    assert sizes == sorted(sizes, reverse=True)
    assert len({i for p in proposals for i in p.items}) == sum(sizes)
    assert all(0 < p.cohesion <= 1 for p in proposals)


async def test_an_id_that_is_taken_gets_a_number(house: House) -> None:
    first = holding(await house.propose().propose(count=2), "mail__send_mail").skill
    await house.skill_store.save_skills([replace(first, is_active=False)])
    assert holding(await house.propose().propose(count=2), "mail__send_mail").skill.id == f"{first.id}_2"


async def test_a_single_tool_is_left_out(house: House) -> None:
    await house.fill([LONER])
    proposals = await house.propose().propose(count=3)
    assert {i for p in proposals for i in p.items} == {i.id for i in [*MAIL, *CLOCK]}


async def test_single_tools_are_proposed_where_there_is_nothing_else(house: House) -> None:
    proposals = await house.propose().propose(count=MAX_PROPOSALS)
    assert [len(p.items) for p in proposals] == [1] * 5
    assert len({p.skill.name for p in proposals}) == 5


async def test_only_the_tools_without_a_skill_are_looked_at_when_asked_so(house: House) -> None:
    await house.skill_store.save_skills([Skill("clocks", "Clocks")])
    for item in CLOCK:
        await house.skill_store.assign(item.id, [Assignment("clocks", 1.0, True, Origin.HUMAN)])
    (only,) = await house.propose().propose(only_waiting=True)
    assert set(only.items) == {i.id for i in MAIL}
    for item in MAIL:
        await house.skill_store.assign(item.id, [Assignment("clocks", 1.0, True, Origin.HUMAN)])
    assert await house.propose().propose(only_waiting=True) == []


async def test_vanished_tools_are_not_looked_at(house: House) -> None:
    await house.item_store.deactivate([i.id for i in CLOCK])
    assert {i for p in await house.propose().propose() for i in p.items} == {i.id for i in MAIL}


async def test_nothing_is_queued_unless_asked_for(house: House) -> None:
    await house.propose().propose()
    assert await house.queued() == []


async def test_proposals_are_queued_once_however_often_they_are_made(house: House) -> None:
    proposals = await house.propose().propose(count=2, queue=True)
    await house.propose().propose(count=2, queue=True)
    assert sorted(await house.queued()) == sorted(p.skill.name for p in proposals)
    queued = {s.name: s for s in await house.skill_store.list_suggestions()}
    for skill in (p.skill for p in proposals):
        told = queued[skill.name]
        assert (told.description, told.keywords, told.examples) == (skill.description, skill.keywords, skill.examples)


async def test_what_a_person_has_declined_or_there_is_already_is_not_queued_again(house: House) -> None:
    first, second = await house.propose().propose(count=2, queue=True)
    for told in await house.skill_store.list_suggestions():
        assert told.number is not None
        await house.skill_store.review_suggestion(told.number, SuggestionStatus.REJECTED)
    await house.propose().propose(count=2, queue=True)
    assert await house.queued() == []

    fresh = House(house.embedder)
    await fresh.fill([*MAIL, *CLOCK])
    await fresh.skill_store.save_skills([Skill("other", first.skill.name.upper())])
    await fresh.propose().propose(count=2, queue=True)
    assert await fresh.queued() == [second.skill.name]
    await fresh.item_store.close()


async def test_an_empty_catalogue_calls_for_nothing() -> None:
    house = House(HashedEmbedder(8))
    await house.fill([])
    assert await house.propose().propose() == []
    assert await ProposeSkills(house.item_store, house.skill_store, house.index, None).propose() == []
    await house.item_store.close()


async def test_without_a_model_it_says_what_to_do(house: House) -> None:
    with pytest.raises(Unavailable, match=r"no embedding model.*TOOLSCRIPT_SEARCH_MODEL.*index rebuild"):
        await ProposeSkills(house.item_store, house.skill_store, house.index, None).propose()


async def test_without_vectors_it_says_what_to_do(house: House) -> None:
    await house.index.delete(TOOLS, [i.id for i in [*MAIL, *CLOCK]])
    with pytest.raises(Unavailable, match=r"no vectors.*index rebuild"):
        await house.propose().propose()


@pytest.mark.parametrize("count", [0, MAX_PROPOSALS + 1])
async def test_a_count_out_of_range_is_refused(house: House, count: int) -> None:
    with pytest.raises(Invalid, match="1 to 200"):
        await house.propose().propose(count=count)


async def test_a_language_model_names_what_it_is_shown(house: House) -> None:
    model = ScriptedModel(
        lambda prompt: {
            "name": "Letters" if "send_mail" in prompt.text else "Hours",
            "description": "Writes letters.",
            "keywords": ["Post", "post", "stamp"],
        }
    )
    proposals = await ProposeSkills(house.item_store, house.skill_store, house.index, house.embedder, model).propose(
        count=2
    )
    letters = holding(proposals, "mail__send_mail").skill
    assert (letters.id, letters.name, letters.description) == ("letters", "Letters", "Writes letters.")
    assert letters.keywords == ("post", "stamp")
    assert set(letters.examples) == {"send_mail", "read_mail", "drop_mail"}
    assert len(model.asked) == 2
    assert all(set(p.answer["required"]) == {"name", "description", "keywords"} for p in model.asked)


async def test_two_groups_of_one_name_are_told_apart(house: House) -> None:
    proposals = await house.propose(lambda _: {"name": "Things", "description": "", "keywords": []}).propose(count=2)
    names = [p.skill.name for p in proposals]
    assert names[0] == "Things"
    assert names[1].startswith("Things: ")
    assert all(p.skill.description.startswith("Tools for ") and p.skill.keywords for p in proposals)


async def test_what_a_language_model_says_is_one_clean_line_of_bounded_length(house: House) -> None:
    said = {
        "name": "Mail\n\u202e & \x1b[31mPost\x00",
        "description": "A\r\nB " + "long " * 400,
        "keywords": ["a\tb", "", "x" * 500, 7, *map(str, range(30))],
    }
    (proposal,) = await house.propose(lambda _: said).propose(count=1)
    skill = proposal.skill
    assert skill.name == "Mail & [31mPost"
    assert all(map(is_one_clean_line, [skill.name, skill.description, *skill.keywords]))
    assert len(skill.description) <= 400
    assert len(skill.keywords) <= 8
    assert max(map(len, skill.keywords)) <= 40


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"name": "", "description": "x", "keywords": []},
        {"name": "\x00\n", "description": "x", "keywords": []},
        {"name": "123 !", "description": "x", "keywords": []},
        {"name": ["Mail"], "description": "x", "keywords": []},
        {"name": "word " * MAX_NAME_LENGTH, "description": "x", "keywords": []},
    ],
)
async def test_an_answer_without_a_usable_name_leaves_the_words(
    house: House, said: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        named = await house.propose(lambda _: said).propose(count=2)
    assert named == await house.propose().propose(count=2)
    assert "proposals_named_by_words" in caplog.messages


@pytest.mark.parametrize("error", [Unavailable("gone"), UpstreamFailed("nonsense"), Invalid("no such model")])
async def test_a_language_model_that_fails_leaves_the_words_and_is_logged(
    house: House, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Prompt) -> dict[str, Any]:
        raise error

    with caplog.at_level(logging.WARNING):
        named = await house.propose(fail).propose(count=2)
    assert named == await house.propose().propose(count=2)
    (record,) = [r for r in caplog.records if r.message == "proposals_named_by_words"]
    assert (record.__dict__["groups"], record.__dict__["reason"]) == (2, str(error))


async def test_a_language_model_that_is_gone_is_not_waited_for_group_after_group(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    class Fading(ScriptedModel):
        """Answers once, fails once, and is silent from then on."""

        async def answer(self, prompt: Prompt) -> dict[str, Any]:
            said = await super().answer(prompt)
            if len(self.asked) == 2:
                raise Unavailable("gone")
            if len(self.asked) > 2:
                await asyncio.Event().wait()
            return said

    model = Fading(lambda _: {"name": "Things", "description": "", "keywords": []})
    async with asyncio.timeout(10):
        proposals = await ProposeSkills(
            house.item_store, house.skill_store, house.index, house.embedder, model
        ).propose(count=MAX_PROPOSALS)
    assert len(proposals) == 5
    assert [p.skill.name for p in proposals].count("Things") == 1
    (record,) = [r for r in caplog.records if r.message == "proposals_named_by_words"]
    assert (record.__dict__["groups"], record.__dict__["reason"]) == (4, "gone")


async def test_tools_that_write_control_characters_or_nothing_at_all_still_get_names() -> None:
    house = House(HashedEmbedder(8))
    await house.fill(
        [Item("s\n", "a\x1b\nb", "\u202e"), Item("1", "2"), Item("日本", "天気", "東京の天気"), Item("-", "-")]
    )
    for count in (1, 4):
        for skill in (p.skill for p in await house.propose().propose(count=count)):
            assert skill.name
            assert re.fullmatch("[a-z][a-z0-9_]*", skill.id)
            assert all(map(is_one_clean_line, [skill.name, skill.description, *skill.keywords, *skill.examples]))
    await house.item_store.close()
