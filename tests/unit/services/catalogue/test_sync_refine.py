"""The refiner: its usable answers replace the classification, in the background, and its errors change nothing."""

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
    ScriptedRefiner,
    SyncedCatalogue,
)
from tests.servers.chat import ChatApi, Reply, prompt_of, refuses, says
from toolscript.adapters.openai_api.chat import OpenAiChat
from toolscript.domain.catalog import UNCLEAR, Classification, Item, Origin, Skill, Suggestion, SuggestionStatus
from toolscript.domain.search import Vector
from toolscript.ports.models import Classifier
from toolscript.retrieval.text.item_text import build_item_text
from toolscript.services.catalogue.item_points import TOOLS
from toolscript.services.catalogue.refinement import BATCH
from toolscript.services.skills.llm_classifier import LlmClassifier

pytestmark = pytest.mark.req("H-10")

LLM, EMBEDDING = Origin.LLM, Origin.EMBEDDING
Making = Callable[[Classifier], Any]


class ThinkingRefiner(ScriptedRefiner):
    """Signals its start, and answers when released."""

    def __init__(self, places: dict[str, Any]) -> None:
        super().__init__(places)
        self.has_begun = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        answer = await super().classify(items, skills)
        self.has_begun.set()
        await self.may_answer.wait()
        return answer


class VagueRefiner(ScriptedRefiner):
    """A refiner without a usable answer for unknown items."""

    def _find_answer(self, item: Item) -> Classification | None:
        return super()._find_answer(item) or UNCLEAR


class Namer(ScriptedRefiner):
    """A refiner that suggests a new skill for unknown items."""

    def _find_answer(self, item: Item) -> Classification | None:
        missing = Suggestion(f"Kind of {item.name}", "Animals", source_item_id=item.id)
        return super()._find_answer(item) or Classification(missing=missing)


class BrokenRefiner(ScriptedRefiner):
    async def classify(
        self, items: Sequence[tuple[Item, Vector]], skills: Sequence[Skill]
    ) -> list[Classification | None]:
        raise ZeroDivisionError("an error of the refiner")


@pytest.fixture
async def furnished() -> AsyncIterator[Making]:
    """Builds a catalogue with that refiner, classified by the classifier."""
    made: list[SyncedCatalogue] = []

    async def make(refiner: Classifier) -> SyncedCatalogue:
        catalogue = await SyncedCatalogue(refiner=refiner).open(FILES, MAIL, MONEY)
        made.append(catalogue)
        await catalogue.sync.run(ITEMS)
        return catalogue

    yield make
    for catalogue in made:
        await catalogue.close()


async def stamps(catalogue: SyncedCatalogue) -> dict[str, str]:
    """The origin of each item's last classification."""
    return {m.id: m.classified.partition(":")[0] for m in await catalogue.item_store.get_fingerprints()}


async def test_usable_answers_of_the_refiner_replace_the_classification_and_are_indexed(furnished: Making) -> None:
    catalogue = await furnished(ScriptedRefiner({READ.id: [("money", 0.9), ("files", 0.6)], SEND.id: [("mail", 0.7)]}))
    changes = catalogue.skill_changes
    assert await catalogue.sync.refinement.run() == 2
    assert await catalogue.get_assignments(READ) == [("money", LLM), ("files", LLM)]
    assert await catalogue.get_assignments(SEND) == [("mail", LLM)]
    assert await catalogue.get_assignments(WRITE) == [("files", EMBEDDING)]
    assert catalogue.sync.refinement.refined == 2
    assert catalogue.skill_changes > changes
    assert (await catalogue.index.payloads(TOOLS, [READ.id]))[READ.id]["skill_ids"] == ["money", "files"]
    assert (await catalogue.skill_points())["money"][0]["tool_count"] == 1
    await catalogue.assert_index_is_current()


async def test_refined_items_are_not_refined_again_and_unanswered_ones_are(furnished: Making) -> None:
    refiner = ScriptedRefiner({item.id: [("mail", 0.8)] for item in ITEMS if item != WRITE})
    catalogue = await furnished(refiner)
    await catalogue.sync.refinement.run()
    assert sorted(refiner.questions) == sorted(item.id for item in ITEMS)
    refiner.questions.clear()
    assert await catalogue.sync.refinement.run() == 0
    assert refiner.questions == [WRITE.id]
    refiner.places[WRITE.id] = [("files", 0.9)]
    assert await catalogue.sync.refinement.run() == 1
    refiner.questions.clear()
    assert await catalogue.sync.refinement.run() == 0
    await catalogue.sync.run(ITEMS)
    assert await catalogue.sync.refinement.run() == 0
    assert refiner.questions == []


async def test_only_new_and_changed_items_are_refined(furnished: Making) -> None:
    refiner = ScriptedRefiner({item.id: [("mail", 0.8)] for item in ITEMS})
    catalogue = await furnished(refiner)
    await catalogue.sync.refinement.run()
    refiner.questions.clear()
    new = Item("post", "sort_mail", "Sort email messages")
    await catalogue.sync.run([replace(READ, title="Read"), *ITEMS[1:], new])
    await catalogue.sync.refinement.run()
    assert refiner.questions == [READ.id, new.id]


async def test_named_items_are_refined_again(furnished: Making) -> None:
    refiner = ScriptedRefiner({item.id: [("mail", 0.8)] for item in ITEMS})
    catalogue = await furnished(refiner)
    await catalogue.sync.refinement.run()
    refiner.places[READ.id] = [("files", 0.8)]
    refiner.questions.clear()
    assert await catalogue.sync.refinement.run([READ.id]) == 1
    assert refiner.questions == [READ.id]
    assert await catalogue.get_assignments(READ) == [("files", LLM)]


async def test_items_that_a_person_assigned_are_not_refined(furnished: Making) -> None:
    refiner = ScriptedRefiner({READ.id: [("files", 0.9)]})
    catalogue = await furnished(refiner)
    await catalogue.skills.assign(READ.id, ["money"])
    await catalogue.sync.refinement.run([READ.id])
    assert READ.id not in refiner.questions
    assert await catalogue.get_assignments(READ) == [("money", Origin.HUMAN)]
    await catalogue.sync.reclassify(None, force=True)
    await catalogue.sync.refinement.run()
    assert await catalogue.get_assignments(READ) == [("files", LLM)]


@pytest.mark.req("H-11")
async def test_an_item_without_a_fitting_skill_keeps_its_suggestion_until_skills_change(furnished: Making) -> None:
    refiner = Namer({})
    catalogue = await furnished(refiner)
    await catalogue.sync.refinement.run()
    waiting = await catalogue.skill_store.list_suggestions(SuggestionStatus.PENDING)
    assert {s.name for s in waiting} == {f"Kind of {item.name}" for item in ITEMS}
    await catalogue.assert_index_is_current()
    refiner.questions.clear()
    await catalogue.sync.run(ITEMS)
    assert await catalogue.sync.refinement.run() == 0
    await catalogue.skill_store.save_skills([Skill("zoo", "Zoo", "Hay for zebras", keywords=("zebra", "hay"))])
    await catalogue.sync.run(ITEMS)
    assert await catalogue.get_assignments(STRANGE) == [("zoo", EMBEDDING)]
    await catalogue.sync.refinement.run()
    assert set(refiner.questions) == {item.id for item in ITEMS}


async def test_refining_embeds_nothing(furnished: Making) -> None:
    catalogue = await furnished(ScriptedRefiner({item.id: [("mail", 0.8)] for item in ITEMS}))
    assert isinstance(catalogue.embedder, CountingEmbedder)
    catalogue.embedder.embedded.clear()
    await catalogue.sync.refinement.run()
    assert not {build_item_text(item) for item in ITEMS} & set(catalogue.embedder.embedded)


async def test_an_item_that_changes_during_refinement_is_left_alone(furnished: Making) -> None:
    refiner = ThinkingRefiner({item.id: [("money", 0.9)] for item in ITEMS})
    catalogue = await furnished(refiner)
    refining = asyncio.create_task(catalogue.sync.refinement.run())
    await refiner.has_begun.wait()
    changed = replace(READ, description="Email message: send an email message")
    await catalogue.sync.run([changed, *(item for item in ITEMS if item not in (READ, FETCH))])
    await catalogue.skills.assign(SEND.id, ["mail"])
    refiner.may_answer.set()
    assert await refining == 4
    assert await catalogue.get_assignments(READ) == [("mail", EMBEDDING)]
    assert (await stamps(catalogue))[READ.id] == EMBEDDING
    assert await catalogue.get_assignments(SEND) == [("mail", Origin.HUMAN)]
    assert await catalogue.get_assignments(WRITE) == [("money", LLM)]
    (vector,) = (await catalogue.index.vectors(TOOLS, [READ.id])).values()
    np.testing.assert_allclose(
        vector, (await catalogue.embedder.embed_documents([build_item_text(changed)]))[0], atol=1e-6
    )
    assert await catalogue.index.payloads(TOOLS, [FETCH.id]) == {}
    await catalogue.assert_index_is_current()
    refiner.questions.clear()
    await catalogue.sync.refinement.run()
    assert refiner.questions == [READ.id]
    assert await catalogue.get_assignments(READ) == [("money", LLM)]


@pytest.mark.parametrize("how", ["removed", "inactive"])
async def test_a_skill_that_is_deleted_during_refinement_gets_no_items(furnished: Making, how: str) -> None:
    refiner = ThinkingRefiner({READ.id: [("money", 0.9)], WRITE.id: [("files", 0.9), ("money", 0.8)]})
    catalogue = await furnished(refiner)
    refining = asyncio.create_task(catalogue.sync.refinement.run())
    await refiner.has_begun.wait()
    if how == "removed":
        await catalogue.skills.remove("money")
    else:
        await catalogue.skills.replace("money", replace(MONEY, is_active=False))
    refiner.may_answer.set()
    await refining
    assert await catalogue.get_assignments(READ) == [("files", EMBEDDING)]
    assert await catalogue.get_assignments(WRITE) == [("files", EMBEDDING)]
    await catalogue.assert_index_is_current()


async def test_a_model_that_raises_changes_nothing_and_the_next_run_tries_again(
    furnished: Making, caplog: pytest.LogCaptureFixture
) -> None:
    catalogue = await furnished(BrokenRefiner({}))
    before = await catalogue.dump()
    with caplog.at_level(logging.ERROR):
        assert await catalogue.sync.refinement.run() == 0
        catalogue.sync.refinement.start_soon()
        await catalogue.sync.close()
    assert "refiner_failed" in caplog.text
    assert await catalogue.dump() == before
    assert (await catalogue.sync.run(ITEMS)).indexed == 0


@pytest.mark.slow
async def test_a_run_ends_when_the_model_does_not_answer() -> None:
    refiner = ScriptedRefiner({})
    catalogue = await SyncedCatalogue(refiner=refiner).open(FILES)
    await catalogue.sync.run([Item("disk", f"file_{n:03d}", "Read a file") for n in range(BATCH + 10)])
    assert await catalogue.sync.refinement.run() == 0
    assert len(refiner.questions) == BATCH
    await catalogue.close()


async def test_a_run_goes_on_after_unusable_answers() -> None:
    refiner = VagueRefiner({})
    catalogue = await SyncedCatalogue(refiner=refiner).open(FILES)
    await catalogue.sync.run([Item("disk", f"file_{n:03d}", "Read a file") for n in range(BATCH + 10)])
    assert await catalogue.sync.refinement.run() == 0
    assert len(refiner.questions) == BATCH + 10
    await catalogue.close()


async def test_an_item_with_an_unusable_answer_is_refined_again_only_when_it_changes(furnished: Making) -> None:
    refiner = VagueRefiner({READ.id: [("mail", 0.8)]})
    catalogue = await furnished(refiner)
    before = (
        await catalogue.item_store.get_items([STRANGE.id, WRITE.id]),
        await catalogue.skill_store.list_suggestions(),
    )
    assert await catalogue.sync.refinement.run() == 1
    assert (
        await catalogue.item_store.get_items([STRANGE.id, WRITE.id]),
        await catalogue.skill_store.list_suggestions(),
    ) == before
    refiner.questions.clear()
    assert (await catalogue.sync.run(ITEMS)).classified == 0
    assert await catalogue.sync.refinement.run() == 0
    assert refiner.questions == []
    await catalogue.sync.run([*(i for i in ITEMS if i != WRITE), replace(WRITE, title="Write")])
    await catalogue.skill_store.save_skills([Skill("zoo", "Zoo", "Animals")])  # fits the unclassified item
    await catalogue.sync.run([*(i for i in ITEMS if i != WRITE), replace(WRITE, title="Write")])
    await catalogue.sync.refinement.run()
    assert sorted(refiner.questions) == sorted([WRITE.id, STRANGE.id])
    refiner.questions.clear()
    await catalogue.sync.reclassify(None, replace_model=True)
    await catalogue.sync.refinement.run()
    assert len(refiner.questions) == len(ITEMS)


async def test_the_classifier_replaces_refined_answers_only_when_all_are_reclassified(furnished: Making) -> None:
    refiner = ScriptedRefiner({READ.id: [("money", 0.9)], STRANGE.id: [("mail", 0.9)]})
    catalogue = await furnished(refiner)
    await catalogue.sync.refinement.run()
    await catalogue.sync.reclassify([READ.id])
    await catalogue.sync.reclassify(None)
    await catalogue.skills.create(Skill("zoo", "Zoo", "Hay for zebras", keywords=("zebra", "hay")))
    made = await catalogue.skill_store.add_suggestion(Suggestion("Zebras", "Hay for zebras", keywords=("zebra", "hay")))
    await catalogue.skills.approve(made.number or 0)
    assert await catalogue.get_assignments(READ) == [("money", LLM)]
    assert await catalogue.get_assignments(STRANGE) == [("mail", LLM)]
    await catalogue.sync.reclassify(None, replace_model=True)
    assert await catalogue.get_assignments(READ) == [("files", EMBEDDING)]
    assert (await catalogue.get_assignments(STRANGE))[0][1] == EMBEDDING


async def test_items_are_refined_again_after_a_person_changes_skills(furnished: Making) -> None:
    refiner = Namer({item.id: [("files", 0.8)] for item in ITEMS if item != STRANGE})
    catalogue = await furnished(refiner)
    await catalogue.sync.refinement.run()
    (waiting,) = await catalogue.skill_store.list_suggestions(SuggestionStatus.PENDING)
    zoo = Skill("zoo", "Zoo", "Nothing that fits")
    for change, questions in [
        (catalogue.skills.create(zoo), {STRANGE.id}),
        (catalogue.skills.replace("zoo", replace(zoo, description="Nothing at all")), {STRANGE.id}),
        (catalogue.skills.release(READ.id), {READ.id}),
        (catalogue.skills.remove("files"), {item.id for item in ITEMS}),
        (catalogue.skills.approve(waiting.number or 0), {item.id for item in ITEMS if item != STRANGE}),
    ]:
        refiner.questions.clear()
        refiner.places.clear()
        await change
        await asyncio.gather(*background())
        assert set(refiner.questions) == questions


@pytest.mark.req("H-11")
async def test_suggestion_numbers_stay_while_a_reviewer_decides_one_after_the_other() -> None:
    catalogue = await SyncedCatalogue(refiner=Namer({}), refine_every=3600).open(FILES, MAIL)
    animals = ["lion", "stork", "otter", "mole"]
    await catalogue.sync.run([Item("zoo", f"feed_{animal}", f"Hay for {animal} number seven") for animal in animals])
    catalogue.sync.refinement.start_soon()
    await asyncio.gather(*background())
    waiting = [(s.number or 0, s.name) for s in await catalogue.skill_store.list_suggestions(SuggestionStatus.PENDING)]
    assert [name for _, name in waiting] == [f"Kind of feed_{animal}" for animal in sorted(animals)]
    for decided in range(2):  # the refiner has not run again yet
        await catalogue.skills.approve(waiting[decided][0], name=f"Unlike {decided}", description="Anything else")
        left = await catalogue.skill_store.list_suggestions(SuggestionStatus.PENDING)
        assert [(s.number, s.name) for s in left] == waiting[decided + 1 :]
    assert await catalogue.sync.refinement.run() == 2
    left = await catalogue.skill_store.list_suggestions(SuggestionStatus.PENDING)
    assert [(s.number, s.name) for s in left] == waiting[2:]
    await catalogue.close()


async def test_background_runs_keep_the_interval() -> None:
    refiner = ScriptedRefiner({item.id: [("files", 0.9)] for item in ITEMS})
    catalogue = await SyncedCatalogue(refiner=refiner, refine_every=3600).open(FILES)
    await catalogue.sync.run(ITEMS[:1])
    catalogue.sync.refinement.start_soon()
    await asyncio.gather(*background())
    assert refiner.questions == [READ.id]
    await catalogue.sync.run(ITEMS)
    catalogue.sync.refinement.start_soon()
    await asyncio.wait(background(), timeout=0.05)
    assert refiner.questions == [READ.id]
    assert len(background()) == 1
    assert await catalogue.sync.refinement.run() == len(ITEMS) - 1  # a requested run starts at once
    await catalogue.close()
    assert background() == []


@pytest.mark.slow
async def test_many_items_are_refined_in_batches_with_progress() -> None:
    many = [Item("disk", f"file_{n:03d}", "Read a file") for n in range(BATCH + 10)]
    catalogue = await SyncedCatalogue(refiner=ScriptedRefiner({i.id: [("mail", 0.8)] for i in many})).open(FILES, MAIL)
    await catalogue.sync.run(many)
    reported: list[tuple[int, int]] = []
    assert await catalogue.sync.refinement.run(progress=lambda done, total: reported.append((done, total))) == len(many)
    assert reported == [(BATCH, len(many)), (len(many), len(many))]
    assert (await catalogue.skill_points())["files"][0]["tool_count"] == 0
    await catalogue.assert_index_is_current()
    await catalogue.close()


async def test_start_soon_does_not_block(furnished: Making) -> None:
    refiner = ThinkingRefiner({item.id: [("money", 0.9)] for item in ITEMS})
    catalogue = await furnished(refiner)
    catalogue.sync.refinement.start_soon()
    await refiner.has_begun.wait()
    report = await catalogue.sync.run([*ITEMS, Item("post", "sort_mail", "Sort email messages")])
    assert report.added == 1
    assert await catalogue.get_assignments(READ) == [("files", EMBEDDING)]
    refiner.may_answer.set()
    await asyncio.gather(*background())
    assert catalogue.sync.refinement.refined == 7
    assert await catalogue.get_assignments(READ) == [("money", LLM)]


async def test_items_added_during_a_run_are_refined_in_the_next_run(furnished: Making) -> None:
    new = Item("post", "sort_mail", "Sort email messages")
    refiner = ThinkingRefiner({item.id: [("money", 0.9)] for item in [*ITEMS, new]})
    catalogue = await furnished(refiner)
    catalogue.sync.refinement.start_soon()
    await refiner.has_begun.wait()
    await catalogue.sync.run([*ITEMS, new])
    catalogue.sync.refinement.start_soon()
    catalogue.sync.refinement.start_soon()
    refiner.may_answer.set()
    await asyncio.gather(*background())
    assert catalogue.sync.refinement.refined == 8
    assert refiner.questions == [*sorted(item.id for item in ITEMS), new.id]


async def test_closing_cancels_a_running_refinement(furnished: Making) -> None:
    refiner = ThinkingRefiner({item.id: [("money", 0.9)] for item in ITEMS})
    catalogue = await furnished(refiner)
    before = await catalogue.dump()
    catalogue.sync.refinement.start_soon()
    await refiner.has_begun.wait()
    await catalogue.sync.close()
    await catalogue.sync.close()
    assert await catalogue.dump() == before
    assert background() == []


async def test_without_a_refiner_nothing_runs() -> None:
    catalogue = await SyncedCatalogue().open(FILES)
    catalogue.sync.refinement.start_soon()
    assert await catalogue.sync.refinement.run() == 0
    assert background() == []
    await catalogue.close()


async def test_after_a_failed_model_the_classification_stays_and_the_next_run_tries_again(
    furnished: Making, caplog: pytest.LogCaptureFixture
) -> None:
    is_up = False

    def reply(questions: dict[str, Any]) -> Reply:
        if not is_up:
            return refuses(503, "out of order")
        money = {"work": "pay", "assignments": [{"skill_id": "money", "confidence": 0.8}], "missing": None}
        return says(dict.fromkeys(prompt_of(questions), money))

    with ChatApi(reply) as api:
        model = OpenAiChat(api.url, None, "tiny", retries=0)
        catalogue = await furnished(LlmClassifier(model))
        assert await catalogue.sync.refinement.run() == 0
        assert await catalogue.get_assignments(READ) == [("files", EMBEDDING)]
        assert "language_model_unavailable" in caplog.text
        is_up = True
        assert await catalogue.sync.refinement.run() == 7
        assert await catalogue.get_assignments(READ) == [("money", LLM)]
        questions = len(api.bodies)
        assert await catalogue.sync.refinement.run() == 0
        assert len(api.bodies) == questions
        await model.close()


def background() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "refining skills"]
