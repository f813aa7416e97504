"""Classification by embeddings: independent of other items, deterministic, and sensible for real tools."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.catalogue import FILES, ITEMS, MAIL, MONEY, READ, CountingEmbedder
from tests.fixtures.examples import scale_examples
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.onnx.embedder import OnnxEmbedder
from toolscript.domain.catalog import MAX_SKILLS, Classification, Item, Skill
from toolscript.domain.search import SimilarityRange
from toolscript.ports.models import Embedder
from toolscript.retrieval.text.item_text import build_item_text
from toolscript.services.skills.embedding_classifier import (
    MIN_CONFIDENCE,
    EmbeddingClassifier,
    suggest_skill,
)
from toolscript.services.skills.skills_file import load_skills

pytestmark = pytest.mark.req("H-10")

SKILLS = [FILES, MAIL, MONEY]
WORDS = ["read", "write", "file", "folder", "email", "message", "invoice", "zebra", "the", "文件", "😀", "x1", "Söhne"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
ANY_ITEMS = st.builds(Item, st.sampled_from(["disk", "post", ""]), TEXTS, TEXTS)
ANY_SKILLS = st.lists(
    st.builds(Skill, st.sampled_from("abcdefgh"), TEXTS, TEXTS, keywords=st.lists(TEXTS, max_size=3).map(tuple)),
    max_size=6,
    unique_by=lambda s: s.id,
)


async def classify(items: list[Item], skills: list[Skill], embedder: Embedder | None = None) -> list[Classification]:
    embedder = embedder or HashedEmbedder(32)
    vectors = await embedder.embed_documents([build_item_text(item) for item in items])
    found = await EmbeddingClassifier(embedder).classify(list(zip(items, vectors, strict=True)), skills)
    assert len(found) == len(items)
    return [each for each in found if each is not None]


@pytest.mark.extended
@settings(max_examples=scale_examples(100), deadline=None)
@given(st.lists(ANY_ITEMS, min_size=1, max_size=8), ANY_SKILLS)
def test_each_item_is_classified_independently_of_the_others(items: list[Item], skills: list[Skill]) -> None:
    async def check() -> None:
        together = await classify(items, skills)
        alone = [(await classify([item], skills))[0] for item in items]
        assert together == alone
        assert await classify(items[::-1], skills) == together[::-1]
        for item, found in zip(items, together, strict=True):
            sureness = [a.confidence for a in found.assignments]
            assert len(sureness) <= MAX_SKILLS
            assert all(MIN_CONFIDENCE <= c <= 1 for c in sureness)
            assert sureness == sorted(sureness, reverse=True)
            assert [a.is_primary for a in found.assignments] == [True, False, False][: len(sureness)]
            assert {a.skill_id for a in found.assignments} <= {s.id for s in skills}
            assert found.missing == (None if sureness else suggest_skill(item))

    asyncio.run(check())


@pytest.mark.req("H-07")
async def test_a_lower_ceiling_for_skills_gives_more_confidence_in_the_same_skill() -> None:
    class Narrow(HashedEmbedder):
        similarity = SimilarityRange(0.0, 1.0, skills=0.5)

    ((plain,), (narrow,)) = [await classify([READ], SKILLS, embedder) for embedder in (HashedEmbedder(32), Narrow(32))]
    assert plain.assignments[0].skill_id == narrow.assignments[0].skill_id
    assert plain.assignments[0].confidence < narrow.assignments[0].confidence


async def test_equally_fitting_skills_are_ordered_by_id() -> None:
    twins = [Skill(i, "Files", "Read a file", keywords=("file",)) for i in "cab"]
    (found,) = await classify([READ], twins)
    assert [a.skill_id for a in found.assignments] == ["a", "b", "c"]


async def test_the_skills_are_embedded_once_until_they_change() -> None:
    embedder = CountingEmbedder()
    classifier = EmbeddingClassifier(embedder)
    (vector,) = await embedder.embed_documents([build_item_text(READ)])
    embedder.embedded.clear()
    for _ in range(3):
        await classifier.classify([(READ, vector)], SKILLS)
    assert len(embedder.embedded) == 3
    await classifier.classify([(READ, vector)], SKILLS[:1])
    assert len(embedder.embedded) == 4


@pytest.mark.req("H-11")
@pytest.mark.parametrize(
    ("item", "name", "description"),
    [
        (Item("zoo", "feedZebra", "Feeds a zebra. With hay."), "Zoo Feed Zebra", "Feeds a zebra."),
        (Item("github", "github_star", "First line\nsecond"), "Github Star", "First line"),
        (Item("", "", ""), "Unnamed", ""),
        (Item("😀", "😀", "😀"), "Unnamed", "😀"),
        (Item("a\0b", "c\x1b[31m", "\x00x\ud800y"), "A B C 31m", "xy"),
    ],
)
async def test_an_item_that_fits_nowhere_suggests_a_skill_for_itself(item: Item, name: str, description: str) -> None:
    suggested = suggest_skill(item)
    assert (suggested.name, suggested.description) == (name, description)
    assert (suggested.source_item_id, suggested.examples) == (item.id, (item.name,))


@pytest.mark.req("H-11")
async def test_long_texts_of_a_server_are_cut_in_suggestions() -> None:
    suggested = suggest_skill(Item("s" * 5000, "n" * 5000, "d" * 5000))
    assert len(suggested.name) == 80
    assert len(suggested.description) == 500
    assert suggested.description.endswith("…")


@pytest.mark.parametrize("description", ["", "   ", "the and of to you", "😀😀😀", "\0" * 100, "file " * 400_000])
async def test_extreme_descriptions_are_classified_quickly(description: str) -> None:
    item = Item("disk", "read_file", description)
    (vector,) = await HashedEmbedder(32).embed_documents(["read file"])
    classifier = EmbeddingClassifier(HashedEmbedder(32))
    started = time.process_time()
    (found,) = await classifier.classify([(item, vector)], SKILLS)
    assert time.process_time() - started < 20
    assert found is not None
    assert [a.skill_id for a in found.assignments] == ["files"]


async def test_a_long_description_does_not_outweigh_the_name() -> None:
    long = Item("disk", "read_file", "Read a file. " + "It costs a payment and an invoice. " * 500)
    (found,) = await classify([long], SKILLS)
    assert found.assignments[0].skill_id == "files"


CLEAR = [
    (Item("gmail", "send_email", "Send an email message to a recipient"), "email"),
    (Item("filesystem", "read_file", "Read the complete contents of a file from the file system"), "file_operations"),
    (Item("git", "git_commit", "Record changes to the repository"), "source_control"),
    (Item("github", "create_pull_request", "Create a new pull request in a GitHub repository"), "source_control"),
    (Item("calendar", "create_event", "Create a calendar event and invite attendees"), "calendar_and_scheduling"),
    (Item("postgres", "query", "Run a read-only SQL query against the database"), "databases"),
    (Item("weather", "get_forecast", "Get the weather forecast for a location"), "weather_and_environment"),
    (Item("slack", "post_message", "Post a message to a Slack channel"), "messaging_and_calls"),
    (Item("stripe", "create_payment_link", "Create a payment link for a product"), "payments_and_accounting"),
    (Item("shell", "run_command", "Execute a shell command and return its output"), "shell_and_system"),
    (Item("kubernetes", "list_pods", "List the pods in a Kubernetes namespace"), "deployment_and_containers"),
    (Item("maps", "get_directions", "Get driving directions between two places"), "travel_and_places"),
]


@pytest.mark.slow
async def test_unambiguous_tools_get_the_expected_skill(tool_model: OnnxEmbedder) -> None:
    skills = load_skills()
    found = await classify([item for item, _ in CLEAR], skills, tool_model)
    placed = {item.name: each.assignments[0].skill_id for (item, _), each in zip(CLEAR, found, strict=True)}
    assert placed == {item.name: skill for item, skill in CLEAR}


FOREIGN = {
    "shell": "shell_and_system",
    "github": "source_control",
    "gmail": "email",
    "kubernetes": "deployment_and_containers",
    "postgres": "databases",
    "slack": "messaging_and_calls",
}
UNUSUAL = [
    ("inspect_hive", "Inspect a bee hive"),
    ("water_roses", "Water the roses in the garden"),
    ("list_candles", "List the candles"),
    ("sharpen", "Sharpen a kitchen knife"),
    ("saddle_horse", "Put a saddle on a horse"),
]


@pytest.mark.extended
async def test_the_name_of_a_server_does_not_decide(tool_model: OnnxEmbedder) -> None:
    """A tool is in the skill of its server's name only if it would be there on any other server."""
    for tool in UNUSUAL:
        items = [Item(server, *tool) for server in ("", *FOREIGN)]
        placed = [{a.skill_id for a in each.assignments} for each in await classify(items, load_skills(), tool_model)]
        wrong = [
            i.id for i, skills in zip(items[1:], placed[1:], strict=True) if FOREIGN[i.server] in skills - placed[0]
        ]
        assert wrong == []


@pytest.mark.extended
async def test_the_example_tools_of_the_packaged_skills_get_their_skill(tool_model: OnnxEmbedder) -> None:
    skills = load_skills()
    examples = [(Item("server", name), skill.id) for skill in skills for name in skill.examples]
    found = await classify([item for item, _ in examples], skills, tool_model)
    at_home = [
        wanted in {a.skill_id for a in each.assignments} for (_, wanted), each in zip(examples, found, strict=True)
    ]
    assert sum(at_home) >= 0.9 * len(at_home)


async def test_the_items_of_other_tests_are_classified_as_those_tests_expect() -> None:
    found = await classify(ITEMS, SKILLS)
    placed = [[a.skill_id for a in each.assignments] for each in found]
    assert placed == [["files"], ["files"], ["files"], ["mail"], ["mail"], ["files"], []]
