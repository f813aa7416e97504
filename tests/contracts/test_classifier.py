"""What every classifier promises: by meaning and words, and by a language model that speaks the chat protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from tests.fixtures.catalogue import FILES, MAIL, MONEY, READ, SEND, STRANGE
from tests.servers.chat import ChatApi, Reply, prompt_of, says
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.openai_api.chat import OpenAiChat
from toolscript.domain.catalog import Classification, Item, Origin, Skill
from toolscript.ports.models import Classifier
from toolscript.retrieval.text.item_text import build_item_text
from toolscript.services.skills.embedding_classifier import EmbeddingClassifier
from toolscript.services.skills.llm_classifier import LlmClassifier

pytestmark = pytest.mark.req("H-10")

SKILLS = [FILES, MAIL, MONEY]
BOTH = Item("post", "attach_file", "Send a file by email message")
ITEMS = [READ, SEND, STRANGE, BOTH]
WORDS = {"files": ("file",), "mail": ("email",), "money": ("invoice",)}


def sensibly(request: dict[str, Any]) -> Reply:
    """A model that goes by words, is as sure of four skills as of one, and invents one."""
    tool = request["response_format"]["json_schema"]["schema"]["$defs"]["tool"]["properties"]
    ids = tool["assignments"]["items"]["properties"]["skill_id"]["enum"]
    answers = {}
    for key, tool_text in prompt_of(request).items():
        text = tool_text["description"].casefold()
        sure = [(i, 0.9 - 0.1 * n) for n, i in enumerate(ids) if any(w in text for w in WORDS.get(i, (i,)))]
        unsure = [("sorcery", 0.99), *((i, 0.3) for i in ids)]
        missing = None if sure else {"name": "Animals", "description": "Care for animals."}
        pairs = [{"skill_id": i, "confidence": c} for i, c in ([*sure, *unsure] if sure else [])]
        answers[key] = {"work": "something", "assignments": pairs, "missing": missing}
    return says(answers)


@pytest.fixture(params=["embedding", "llm"])
async def classifier(request: pytest.FixtureRequest) -> AsyncIterator[Classifier]:
    if request.param == "embedding":
        yield EmbeddingClassifier(HashedEmbedder())
        return
    with ChatApi(sensibly) as api:
        model = OpenAiChat(api.url, None, "sensible", retries=0)
        yield LlmClassifier(model)
        await model.close()


async def classify(classifier: Classifier, items: list[Item], skills: list[Skill]) -> list[Classification | None]:
    vectors = await HashedEmbedder().embed_documents([build_item_text(item) for item in items])
    return await classifier.classify(list(zip(items, vectors, strict=True)), skills)


async def test_every_item_is_answered_in_order(classifier: Classifier) -> None:
    read, send, strange, both = await classify(classifier, ITEMS, SKILLS)
    assert read is not None
    assert [a.skill_id for a in read.assignments] == ["files"]
    assert send is not None
    assert [a.skill_id for a in send.assignments] == ["mail"]
    assert strange is not None
    assert strange.assignments == ()
    assert both is not None
    assert {a.skill_id for a in both.assignments} <= {"files", "mail"}
    backwards = await classify(classifier, ITEMS[::-1], SKILLS)
    assert backwards == [both, strange, send, read]


async def test_an_answer_keeps_the_rules(classifier: Classifier) -> None:
    alike = [Skill(f"file_{n}", "Files", "Read and write a file", keywords=("file",)) for n in range(5)]
    for skills in (SKILLS, alike, [FILES]):
        for found in await classify(classifier, ITEMS, skills):
            assert found is not None
            assert len(found.assignments) <= 3
            assert {a.skill_id for a in found.assignments} <= {s.id for s in skills}
            assert len({a.skill_id for a in found.assignments}) == len(found.assignments)
            sureness = [a.confidence for a in found.assignments]
            assert sureness == sorted(sureness, reverse=True)
            assert all(0.5 <= c <= 1.0 for c in sureness)
            assert [a.is_primary for a in found.assignments] == [n == 0 for n in range(len(sureness))]
            assert all(a.origin in (Origin.EMBEDDING, Origin.LLM) for a in found.assignments)


@pytest.mark.req("H-11")
async def test_an_item_that_fits_nowhere_gets_a_suggested_skill(classifier: Classifier) -> None:
    (found,) = await classify(classifier, [STRANGE], SKILLS)
    assert found is not None
    assert found.assignments == ()
    assert found.missing is not None
    assert found.missing.name.strip()
    assert found.missing.source_item_id == STRANGE.id


@pytest.mark.req("H-11")
async def test_where_there_are_no_skills_everything_lacks_one(classifier: Classifier) -> None:
    for item, found in zip(ITEMS, await classify(classifier, ITEMS, []), strict=True):
        assert found is not None
        assert found.assignments == ()
        assert found.missing is not None
        assert found.missing.source_item_id == item.id


async def test_no_items_are_no_answers(classifier: Classifier) -> None:
    assert await classifier.classify([], SKILLS) == []
    assert await classifier.classify([], []) == []


async def test_the_same_question_has_the_same_answer(classifier: Classifier) -> None:
    assert await classify(classifier, ITEMS, SKILLS) == await classify(classifier, ITEMS, SKILLS)


async def test_nothing_a_server_writes_can_break_it(classifier: Classifier) -> None:
    odd = ["", " \n\t", "\0\x1b[31m", "😀" * 50, "the of and to", "x" * 100_000, '"}]}', "файл", "\u202efile"]
    items = [Item("s" * 300, text[:200], text) for text in odd]
    vector = np.zeros(64, dtype=np.float32)
    found = await classifier.classify([(item, vector) for item in items], SKILLS)
    assert len(found) == len(items)
    for each in found:
        assert each is not None
        assert each.assignments or each.missing
