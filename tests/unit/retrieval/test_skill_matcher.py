"""How well an item fits a skill, compared with the same arithmetic in plain Python, and what changes it."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.catalogue import FILES, MAIL, MONEY, READ
from tests.fixtures.examples import scale_examples
from toolscript.domain.catalog import Item, Skill
from toolscript.domain.search import SimilarityRange, Vector
from toolscript.retrieval import skill_matcher
from toolscript.retrieval.skill_matcher import SkillMatcher
from toolscript.retrieval.text.themes import GENERIC
from toolscript.retrieval.text.words import STOP_WORDS, stem, words

pytestmark = pytest.mark.req("H-10")

SKILLS = [FILES, MAIL, MONEY]
SIMILARITY = SimilarityRange(0.1, 0.8)
VOCABULARY = st.lists(st.sampled_from(["read", "file", "email", "invoice", "zebra", "the", "of", "pay"]), max_size=10)
TEXTS = VOCABULARY.map(" ".join)
NUMBERS = st.lists(st.floats(-1, 1, width=32), min_size=4, max_size=4)


def unit(numbers: list[float]) -> Vector:
    row = np.array(numbers, dtype=np.float32)
    length = float(np.linalg.norm(row))
    return row / length if length > 1e-3 else np.eye(4, dtype=np.float32)[0]


def flat() -> list[Vector]:
    """Skills that no vector is nearer to than to others, so that words alone decide."""
    return [np.eye(4, dtype=np.float32)[0]] * len(SKILLS)


def confidences(item: Item) -> list[float]:
    row = SkillMatcher(SKILLS, flat(), SIMILARITY).confidences([item], [np.eye(4, dtype=np.float32)[1]])[0]
    return [float(c) for c in row]


def by_hand(item: Item, vector: Vector, skills: list[Skill], vectors: list[Vector]) -> list[float]:
    """The definition, without a shortcut."""

    def count_terms(text: str, weight: int) -> Counter[str]:
        return Counter({stem(w): n * weight for w, n in Counter(words(text)).items() if w not in STOP_WORDS})

    message = [
        count_terms(" ".join(s.keywords), 2)
        + count_terms(" ".join(s.examples), 1)
        + count_terms(s.name, 2)
        + count_terms(s.description, 1)
        for s in skills
    ]
    own = count_terms(item.description, 1) + count_terms(item.name, 2)
    every = own + count_terms(item.server, 1)

    def rarity(word: str) -> float:
        holding = sum(word in counts for counts in message)
        return math.log(1 + (len(skills) - holding + 0.5) / (holding + 0.5)) if holding else skill_matcher.UNKNOWN_WORD

    found = []
    for counts, place in zip(message, vectors, strict=True):
        near = (float(vector @ place) - SIMILARITY.floor) / (SIMILARITY.ceiling - SIMILARITY.floor)
        total = sum(min(n, 3) * rarity(w) for w, n in every.items())
        weights = {w: rarity(w) * n * 2.2 / (n + 1.2) for w, n in counts.items()}
        by_item = sum(min(own[w], 3) * weight for w, weight in weights.items())
        by_server = sum((min(every[w], 3) - min(own[w], 3)) * weight for w, weight in weights.items())
        specific = sum(min(own[w], 3) * weight for w, weight in weights.items() if w not in {stem(g) for g in GENERIC})
        shared = by_item + min(by_server, specific)
        evidence = near + skill_matcher.WORDS * (shared / total if total else 0.0)
        found.append(1 - math.exp(-skill_matcher.STEEPNESS * max(evidence, 0.0)))
    return found


@pytest.mark.slow
@settings(max_examples=scale_examples(200), deadline=None)
@given(TEXTS, TEXTS, TEXTS, st.lists(st.tuples(TEXTS, TEXTS, NUMBERS), min_size=1, max_size=4), NUMBERS)
def test_a_confidence_follows_its_definition(
    server: str, name: str, description: str, response: list[tuple[str, str, list[float]]], numbers: list[float]
) -> None:
    item = Item(server, name, description)
    skills = [Skill(f"s{n}", a, b, keywords=(b,), examples=(a,)) for n, (a, b, _) in enumerate(response)]
    vectors = [unit(v) for _, _, v in response]
    (row,) = SkillMatcher(skills, vectors, SIMILARITY).confidences([item], [unit(numbers)])
    np.testing.assert_allclose(row, by_hand(item, unit(numbers), skills, vectors), atol=1e-4)


@settings(max_examples=scale_examples(50), deadline=None)
@given(st.lists(st.tuples(TEXTS, NUMBERS), min_size=1, max_size=9))
def test_confidences_of_items_are_independent(response: list[tuple[str, list[float]]]) -> None:
    fit = SkillMatcher(SKILLS, [unit([1, n, 2, 3]) for n in range(3)], SIMILARITY)
    items, vectors = [Item("s", "n", text) for text, _ in response], [unit(numbers) for _, numbers in response]
    together = fit.confidences(items, vectors)
    for n, (item, vector) in enumerate(zip(items, vectors, strict=True)):
        assert (fit.confidences([item], [vector])[0] == together[n]).all()


def test_words_of_a_skill_raise_its_confidence_and_unknown_words_lower_all() -> None:
    files, mail, money = confidences(READ)
    assert files > 0.5 > max(mail, money)
    assert confidences(Item("disk", "read_file", "Read a file with a zebra"))[0] < files
    assert confidences(Item("x", "y", "Zebra")) == pytest.approx([confidences(Item("x", "y", "Giraffe"))[0]] * 3)


def test_the_name_of_a_server_supports_a_skill_and_does_not_decide() -> None:
    skills = [Skill("shell", "Shell", "Terminal commands"), Skill("bees", "Bees", "Hives and honey")]
    fit = SkillMatcher(skills, flat()[:2], SIMILARITY)

    def compare(*items: Item) -> list[list[float]]:
        rows = fit.confidences(items, [np.eye(4, dtype=np.float32)[1]] * len(items))
        return [[float(c) for c in row] for row in rows]

    (shell, bees), (_, alone) = compare(Item("shell", "inspect_hive", "Inspect a hive"), Item("x", "inspect_hive"))
    assert bees > shell == 0
    ((supported, _), (without, _)) = compare(Item("shell", "run", "A command"), Item("other", "run", "A command"))
    assert supported > without > 0
    assert alone > 0


def test_only_specific_words_of_the_item_itself_count_as_its_own() -> None:
    skills = [Skill("shell", "Shell", "List commands"), Skill("bees", "Bees", "Hives")]
    fit = SkillMatcher(skills, flat()[:2], SIMILARITY)
    items = [Item("shell", "list_knives"), Item("x", "list_commands"), Item("shell", "hives"), Item("bees", "run")]
    confidences = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]], dtype=np.float32)
    assert fit.find_wordless(items, confidences) == [0, 3]


def test_a_word_of_every_skill_weighs_less_than_a_word_of_one() -> None:
    skills = [Skill("a", "", "special"), Skill("b", "", "common"), Skill("c", "", "common")]
    fit = SkillMatcher(skills, flat(), SIMILARITY)
    ((special, common, also_common),) = fit.confidences([Item("", "common special")], [np.eye(4, dtype=np.float32)[1]])
    assert special > common == also_common > 0


def test_repeating_a_word_does_not_help() -> None:
    three, many = (confidences(Item("zoo", "x", f"zebra {'file ' * n}"))[0] for n in (3, 300))
    assert many == pytest.approx(three)


def test_more_similar_items_are_more_confident_but_below_one() -> None:
    fit = SkillMatcher([Skill("a", "A")], [np.eye(4, dtype=np.float32)[0]], SIMILARITY)
    message = [
        float(fit.confidences([Item("", "")], [unit([c, math.sqrt(1 - c * c), 0, 0])])[0][0])
        for c in (-1, 0.1, 0.3, 0.8, 1)
    ]
    assert message == sorted(message)
    assert message[:2] == pytest.approx([0.0, 0.0])
    assert message[-1] < 1


def test_only_the_beginning_of_a_long_description_is_read() -> None:
    start = "Read a file. " * 40
    assert confidences(Item("d", "f", start)) == confidences(Item("d", "f", start + "invoice " * 100_000))


@pytest.mark.parametrize("item", [Item("", "", ""), Item("the", "of", "and to you"), Item("😀", "😀", "😀")])
def test_without_similarity_and_words_the_confidence_is_zero(item: Item) -> None:
    assert confidences(item) == [0.0, 0.0, 0.0]
