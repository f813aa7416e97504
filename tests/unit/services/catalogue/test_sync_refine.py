"""The refiner has the last word where it says anything, takes its time beside everything else, and breaks nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.fixtures.catalogue import (
    FETCH,
    FILES,
    ITEMS,
    MAIL,
    MONEY,
    READ,
    SEND,
    STRANGE,
    WRITE,
    CountingEmbedder,
    House,
    ScriptedRefiner,
)
from tests.servers.chat import ChatApi, Reply, prompt_of, refuses, says
from toolscript.adapters.openai_api.chat import OpenAiChat
from toolscript.domain.catalog import UNCLEAR, Classification, Item, Origin, Skill, Suggestion, SuggestionStatus
from toolscript.domain.search import Vector
from toolscript.ports.models import Classifier
from toolscript.retrieval.text.item_text import build_item_text
from toolscript.services.catalogue.llm_classifier import LlmClassifier
from toolscript.services.catalogue.refinement import BATCH
from toolscript.services.catalogue.tool_points import TOOLS

pytestmark = pytest.mark.req("H-10")

LLM, EMBEDDING = Origin.LLM, Origin.EMBEDDING
Making = Callable[[Classifier], Any]


class ThinkingRefiner(ScriptedRefiner):
    """Answers when it is let go, and says when it has begun."""

    def __init__(self, places: dict[str, Any]) -> None:
        super().__init__(places)
        self.has_begun = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        said = await super().classify(items, skills)
        self.has_begun.set()
        await self.may_answer.wait()
        return said


class VagueRefiner(ScriptedRefiner):
    """Says nothing usable of what it was not told of."""

    def _said(self, item: Item) -> Classification | None:
        return super()._said(item) or UNCLEAR


class Namer(ScriptedRefiner):
    """Finds no skill for what it was not told of, and says which one is missing."""

    def _said(self, item: Item) -> Classification | None:
        missing = Suggestion(f"Kind of {item.name}", "Animals", source_item_id=item.id)
        return super()._said(item) or Classification(missing=missing)


class BrokenRefiner(ScriptedRefiner):
    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        raise ZeroDivisionError("a fault of its own")


@pytest.fixture
async def furnished() -> AsyncIterator[Making]:
    """Makes a house with that refiner, where everything is sorted by the classifier already."""
    made: list[House] = []

    async def make(refiner: Classifier) -> House:
        house = await House(refiner=refiner).opened(FILES, MAIL, MONEY)
        made.append(house)
        await house.sync.run(ITEMS)
        return house

    yield make
    for house in made:
        await house.close()


async def stamps(house: House) -> dict[str, str]:
    """By whom each item was sorted last."""
    return {m.id: m.classified.partition(":")[0] for m in await house.item_store.get_fingerprints()}


async def test_it_wins_where_it_says_something_and_the_index_follows(furnished: Making) -> None:
    house = await furnished(ScriptedRefiner({READ.id: [("money", 0.9), ("files", 0.6)], SEND.id: [("mail", 0.7)]}))
    changes = house.skill_changes
    assert await house.sync.refinement.run() == 2
    assert await house.assigned(READ) == [("money", LLM), ("files", LLM)]
    assert await house.assigned(SEND) == [("mail", LLM)]
    assert await house.assigned(WRITE) == [("files", EMBEDDING)]
    assert house.sync.refinement.refined == 2
    assert house.skill_changes > changes
    assert (await house.index.payloads(TOOLS, [READ.id]))[READ.id]["skill_ids"] == ["money", "files"]
    assert (await house.skill_points())["money"][0]["tool_count"] == 1
    await house.assert_index_is_current()


async def test_what_it_agreed_with_is_not_asked_again_and_what_it_could_not_say_is(furnished: Making) -> None:
    refiner = ScriptedRefiner({item.id: [("mail", 0.8)] for item in ITEMS if item != WRITE})
    house = await furnished(refiner)
    await house.sync.refinement.run()
    assert sorted(refiner.asked) == sorted(item.id for item in ITEMS)
    refiner.asked.clear()
    assert await house.sync.refinement.run() == 0
    assert refiner.asked == [WRITE.id]
    refiner.places[WRITE.id] = [("files", 0.9)]
    assert await house.sync.refinement.run() == 1
    refiner.asked.clear()
    assert await house.sync.refinement.run() == 0
    await house.sync.run(ITEMS)
    assert await house.sync.refinement.run() == 0
    assert refiner.asked == []


async def test_only_what_is_new_or_changed_is_asked_about(furnished: Making) -> None:
    refiner = ScriptedRefiner({item.id: [("mail", 0.8)] for item in ITEMS})
    house = await furnished(refiner)
    await house.sync.refinement.run()
    refiner.asked.clear()
    new = Item("post", "sort_mail", "Sort email messages")
    await house.sync.run([replace(READ, title="Read"), *ITEMS[1:], new])
    await house.sync.refinement.run()
    assert refiner.asked == [READ.id, new.id]


async def test_items_that_are_named_are_asked_about_once_more(furnished: Making) -> None:
    refiner = ScriptedRefiner({item.id: [("mail", 0.8)] for item in ITEMS})
    house = await furnished(refiner)
    await house.sync.refinement.run()
    refiner.places[READ.id] = [("files", 0.8)]
    refiner.asked.clear()
    assert await house.sync.refinement.run([READ.id]) == 1
    assert refiner.asked == [READ.id]
    assert await house.assigned(READ) == [("files", LLM)]


async def test_a_persons_word_is_not_even_asked_about(furnished: Making) -> None:
    refiner = ScriptedRefiner({READ.id: [("files", 0.9)]})
    house = await furnished(refiner)
    await house.skills.assign(READ.id, ["money"])
    await house.sync.refinement.run([READ.id])
    assert READ.id not in refiner.asked
    assert await house.assigned(READ) == [("money", Origin.HUMAN)]
    await house.sync.reclassify(None, force=True)
    await house.sync.refinement.run()
    assert await house.assigned(READ) == [("files", LLM)]


@pytest.mark.req("H-11")
async def test_what_it_finds_no_skill_for_waits_under_its_name_until_skills_change(furnished: Making) -> None:
    refiner = Namer({})
    house = await furnished(refiner)
    await house.sync.refinement.run()
    waiting = await house.skill_store.list_suggestions(SuggestionStatus.PENDING)
    assert {s.name for s in waiting} == {f"Kind of {item.name}" for item in ITEMS}
    await house.assert_index_is_current()
    refiner.asked.clear()
    await house.sync.run(ITEMS)
    assert await house.sync.refinement.run() == 0
    await house.skill_store.save_skills([Skill("zoo", "Zoo", "Hay for zebras", keywords=("zebra", "hay"))])
    await house.sync.run(ITEMS)
    assert await house.assigned(STRANGE) == [("zoo", EMBEDDING)]
    await house.sync.refinement.run()
    assert set(refiner.asked) == {item.id for item in ITEMS}


async def test_it_needs_no_vector_made_anew(furnished: Making) -> None:
    house = await furnished(ScriptedRefiner({item.id: [("mail", 0.8)] for item in ITEMS}))
    assert isinstance(house.embedder, CountingEmbedder)
    house.embedder.embedded.clear()
    await house.sync.refinement.run()
    assert not {build_item_text(item) for item in ITEMS} & set(house.embedder.embedded)


async def test_an_item_that_changes_while_it_thinks_is_left_as_it_then_is(furnished: Making) -> None:
    refiner = ThinkingRefiner({item.id: [("money", 0.9)] for item in ITEMS})
    house = await furnished(refiner)
    refining = asyncio.create_task(house.sync.refinement.run())
    await refiner.has_begun.wait()
    changed = replace(READ, description="Email message: send an email message")
    await house.sync.run([changed, *(item for item in ITEMS if item not in (READ, FETCH))])
    await house.skills.assign(SEND.id, ["mail"])
    refiner.may_answer.set()
    assert await refining == 4
    assert await house.assigned(READ) == [("mail", EMBEDDING)]
    assert (await stamps(house))[READ.id] == EMBEDDING
    assert await house.assigned(SEND) == [("mail", Origin.HUMAN)]
    assert await house.assigned(WRITE) == [("money", LLM)]
    (vector,) = (await house.index.vectors(TOOLS, [READ.id])).values()
    np.testing.assert_allclose(vector, (await house.embedder.embed_documents([build_item_text(changed)]))[0], atol=1e-6)
    assert await house.index.payloads(TOOLS, [FETCH.id]) == {}
    await house.assert_index_is_current()
    refiner.asked.clear()
    await house.sync.refinement.run()
    assert refiner.asked == [READ.id]
    assert await house.assigned(READ) == [("money", LLM)]


@pytest.mark.parametrize("how", ["removed", "inactive"])
async def test_a_skill_that_goes_while_it_thinks_takes_nothing(furnished: Making, how: str) -> None:
    refiner = ThinkingRefiner({READ.id: [("money", 0.9)], WRITE.id: [("files", 0.9), ("money", 0.8)]})
    house = await furnished(refiner)
    refining = asyncio.create_task(house.sync.refinement.run())
    await refiner.has_begun.wait()
    if how == "removed":
        await house.skills.remove("money")
    else:
        await house.skills.replace("money", replace(MONEY, is_active=False))
    refiner.may_answer.set()
    await refining
    assert await house.assigned(READ) == [("files", EMBEDDING)]
    assert await house.assigned(WRITE) == [("files", EMBEDDING)]
    await house.assert_index_is_current()


async def test_one_that_raises_breaks_nothing_and_is_asked_again(
    furnished: Making, caplog: pytest.LogCaptureFixture
) -> None:
    house = await furnished(BrokenRefiner({}))
    before = await house.dump()
    with caplog.at_level(logging.ERROR):
        assert await house.sync.refinement.run() == 0
        house.sync.refinement.start_soon()
        await house.sync.close()
    assert "refiner_failed" in caplog.text
    assert await house.dump() == before
    assert (await house.sync.run(ITEMS)).indexed == 0


async def test_of_one_that_says_nothing_no_more_is_asked_this_time() -> None:
    refiner = ScriptedRefiner({})
    house = await House(refiner=refiner).opened(FILES)
    await house.sync.run([Item("disk", f"file_{n:03d}", "Read a file") for n in range(BATCH + 10)])
    assert await house.sync.refinement.run() == 0
    assert len(refiner.asked) == BATCH
    await house.close()


async def test_one_that_says_nothing_usable_of_some_is_asked_about_the_others() -> None:
    refiner = VagueRefiner({})
    house = await House(refiner=refiner).opened(FILES)
    await house.sync.run([Item("disk", f"file_{n:03d}", "Read a file") for n in range(BATCH + 10)])
    assert await house.sync.refinement.run() == 0
    assert len(refiner.asked) == BATCH + 10
    await house.close()


async def test_what_it_says_nothing_usable_of_stays_and_is_asked_again_only_when_it_changes(furnished: Making) -> None:
    refiner = VagueRefiner({READ.id: [("mail", 0.8)]})
    house = await furnished(refiner)
    before = (await house.item_store.get_items([STRANGE.id, WRITE.id]), await house.skill_store.list_suggestions())
    assert await house.sync.refinement.run() == 1
    assert (
        await house.item_store.get_items([STRANGE.id, WRITE.id]),
        await house.skill_store.list_suggestions(),
    ) == before
    refiner.asked.clear()
    assert (await house.sync.run(ITEMS)).classified == 0
    assert await house.sync.refinement.run() == 0
    assert refiner.asked == []
    await house.sync.run([*(i for i in ITEMS if i != WRITE), replace(WRITE, title="Write")])
    await house.skill_store.save_skills([Skill("zoo", "Zoo", "Animals")])  # for what fits nowhere
    await house.sync.run([*(i for i in ITEMS if i != WRITE), replace(WRITE, title="Write")])
    await house.sync.refinement.run()
    assert sorted(refiner.asked) == sorted([WRITE.id, STRANGE.id])
    refiner.asked.clear()
    await house.sync.reclassify(None, replace_model=True)
    await house.sync.refinement.run()
    assert len(refiner.asked) == len(ITEMS)


async def test_the_classifier_does_not_overrule_it_unless_all_is_to_be_sorted_anew(furnished: Making) -> None:
    refiner = ScriptedRefiner({READ.id: [("money", 0.9)], STRANGE.id: [("mail", 0.9)]})
    house = await furnished(refiner)
    await house.sync.refinement.run()
    await house.sync.reclassify([READ.id])
    await house.sync.reclassify(None)
    await house.skills.create(Skill("zoo", "Zoo", "Hay for zebras", keywords=("zebra", "hay")))
    made = await house.skill_store.add_suggestion(Suggestion("Zebras", "Hay for zebras", keywords=("zebra", "hay")))
    await house.skills.approve(made.number or 0)
    assert await house.assigned(READ) == [("money", LLM)]
    assert await house.assigned(STRANGE) == [("mail", LLM)]
    await house.sync.reclassify(None, replace_model=True)
    assert await house.assigned(READ) == [("files", EMBEDDING)]
    assert (await house.assigned(STRANGE))[0][1] == EMBEDDING


async def test_a_person_who_changes_skills_has_it_look_again(furnished: Making) -> None:
    refiner = Namer({item.id: [("files", 0.8)] for item in ITEMS if item != STRANGE})
    house = await furnished(refiner)
    await house.sync.refinement.run()
    (waiting,) = await house.skill_store.list_suggestions(SuggestionStatus.PENDING)
    zoo = Skill("zoo", "Zoo", "Nothing that fits")
    for change, asked in [
        (house.skills.create(zoo), {STRANGE.id}),
        (house.skills.replace("zoo", replace(zoo, description="Nothing at all")), {STRANGE.id}),
        (house.skills.release(READ.id), {READ.id}),
        (house.skills.remove("files"), {item.id for item in ITEMS}),
        (house.skills.approve(waiting.number or 0), {item.id for item in ITEMS if item != STRANGE}),
    ]:
        refiner.asked.clear()
        refiner.places.clear()
        await change
        await asyncio.gather(*background())
        assert set(refiner.asked) == asked


@pytest.mark.req("H-11")
async def test_a_reviewer_who_decides_one_after_the_other_finds_the_same_numbers() -> None:
    house = await House(refiner=Namer({}), refine_every=3600).opened(FILES, MAIL)
    animals = ["lion", "stork", "otter", "mole"]
    await house.sync.run([Item("zoo", f"feed_{animal}", f"Hay for {animal} number seven") for animal in animals])
    house.sync.refinement.start_soon()
    await asyncio.gather(*background())
    waiting = [(s.number or 0, s.name) for s in await house.skill_store.list_suggestions(SuggestionStatus.PENDING)]
    assert [name for _, name in waiting] == [f"Kind of feed_{animal}" for animal in sorted(animals)]
    for decided in range(2):  # the refiner has not been asked again yet
        await house.skills.approve(waiting[decided][0], name=f"Unlike {decided}", description="Anything else")
        left = await house.skill_store.list_suggestions(SuggestionStatus.PENDING)
        assert [(s.number, s.name) for s in left] == waiting[decided + 1 :]
    assert await house.sync.refinement.run() == 2
    left = await house.skill_store.list_suggestions(SuggestionStatus.PENDING)
    assert [(s.number, s.name) for s in left] == waiting[2:]
    await house.close()


async def test_in_the_background_it_begins_no_more_often_than_it_may() -> None:
    refiner = ScriptedRefiner({item.id: [("files", 0.9)] for item in ITEMS})
    house = await House(refiner=refiner, refine_every=3600).opened(FILES)
    await house.sync.run(ITEMS[:1])
    house.sync.refinement.start_soon()
    await asyncio.gather(*background())
    assert refiner.asked == [READ.id]
    await house.sync.run(ITEMS)
    house.sync.refinement.start_soon()
    await asyncio.wait(background(), timeout=0.05)
    assert refiner.asked == [READ.id]
    assert len(background()) == 1
    assert await house.sync.refinement.run() == len(ITEMS) - 1  # whoever asks for it has it at once
    await house.close()
    assert background() == []


async def test_many_items_are_refined_batch_by_batch_and_progress_is_told() -> None:
    many = [Item("disk", f"file_{n:03d}", "Read a file") for n in range(BATCH + 10)]
    house = await House(refiner=ScriptedRefiner({i.id: [("mail", 0.8)] for i in many})).opened(FILES, MAIL)
    await house.sync.run(many)
    told: list[tuple[int, int]] = []
    assert await house.sync.refinement.run(progress=lambda done, total: told.append((done, total))) == len(many)
    assert told == [(BATCH, len(many)), (len(many), len(many))]
    assert (await house.skill_points())["files"][0]["tool_count"] == 0
    await house.assert_index_is_current()
    await house.close()


async def test_soon_means_beside_everything_else(furnished: Making) -> None:
    refiner = ThinkingRefiner({item.id: [("money", 0.9)] for item in ITEMS})
    house = await furnished(refiner)
    house.sync.refinement.start_soon()
    await refiner.has_begun.wait()
    report = await house.sync.run([*ITEMS, Item("post", "sort_mail", "Sort email messages")])
    assert report.added == 1
    assert await house.assigned(READ) == [("files", EMBEDDING)]
    refiner.may_answer.set()
    await asyncio.gather(*background())
    assert house.sync.refinement.refined == 7
    assert await house.assigned(READ) == [("money", LLM)]


async def test_what_comes_while_it_is_at_work_is_looked_at_in_the_next_round(furnished: Making) -> None:
    new = Item("post", "sort_mail", "Sort email messages")
    refiner = ThinkingRefiner({item.id: [("money", 0.9)] for item in [*ITEMS, new]})
    house = await furnished(refiner)
    house.sync.refinement.start_soon()
    await refiner.has_begun.wait()
    await house.sync.run([*ITEMS, new])
    house.sync.refinement.start_soon()
    house.sync.refinement.start_soon()
    refiner.may_answer.set()
    await asyncio.gather(*background())
    assert house.sync.refinement.refined == 8
    assert refiner.asked == [*sorted(item.id for item in ITEMS), new.id]


async def test_closing_ends_it_in_the_middle_of_a_thought(furnished: Making) -> None:
    refiner = ThinkingRefiner({item.id: [("money", 0.9)] for item in ITEMS})
    house = await furnished(refiner)
    before = await house.dump()
    house.sync.refinement.start_soon()
    await refiner.has_begun.wait()
    await house.sync.close()
    await house.sync.close()
    assert await house.dump() == before
    assert background() == []


async def test_where_there_is_none_nothing_is_begun() -> None:
    house = await House().opened(FILES)
    house.sync.refinement.start_soon()
    assert await house.sync.refinement.run() == 0
    assert background() == []
    await house.close()


async def test_a_model_that_fails_leaves_the_classifiers_word_and_is_asked_again(
    furnished: Making, caplog: pytest.LogCaptureFixture
) -> None:
    is_up = False

    def reply(asked: dict[str, Any]) -> Reply:
        if not is_up:
            return refuses(503, "out of order")
        money = {"work": "pay", "assignments": [{"skill_id": "money", "confidence": 0.8}], "missing": None}
        return says(dict.fromkeys(prompt_of(asked), money))

    with ChatApi(reply) as api:
        model = OpenAiChat.at(api.url, None, "tiny", retries=0)
        house = await furnished(LlmClassifier(model))
        assert await house.sync.refinement.run() == 0
        assert await house.assigned(READ) == [("files", EMBEDDING)]
        assert "language_model_unavailable" in caplog.text
        is_up = True
        assert await house.sync.refinement.run() == 7
        assert await house.assigned(READ) == [("money", LLM)]
        asked = len(api.bodies)
        assert await house.sync.refinement.run() == 0
        assert len(api.bodies) == asked
        await model.close()


def background() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "refining skills"]
