"""What every vector index promises, whatever engine is behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from toolscript.adapters.qdrant import index as qdrant_index
from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.filters import Condition, Filter, Op, Payload, Subset, matches
from toolscript.domain.search import Collection, FieldType, Point, Terms, Vector
from toolscript.ports.indexes import VectorIndex

pytestmark = pytest.mark.req("X-02", "H-16")

NAME = "things"
THINGS = Collection(NAME, "model-a", 3, {"color": FieldType.KEYWORD, "size": FieldType.INTEGER})


def unit(*values: float) -> Vector:
    vector = np.array(values, np.float32)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def point(own_id: str, vector: Vector | None = None, terms: dict[int, float] | None = None, **payload: object) -> Point:
    weights = terms or {}
    return Point(own_id, vector, Terms(tuple(weights), tuple(weights.values())), payload)


@pytest.fixture
async def things(index: VectorIndex) -> VectorIndex:
    await index.drop(NAME)
    await index.open(THINGS)
    await index.upsert(
        NAME,
        [
            point("a", unit(1, 0, 0), {1: 1.0, 2: 0.5}, color="red", size=1, tags=["x", "y"]),
            point("b", unit(1, 1, 0), {2: 2.0}, color="red", size=2),
            point("c", unit(0, 1, 0), {3: 1.0}, color="blue", size=3, tags=[]),
            point("d", unit(0, 0, 1), {1: 0.2}, color="green"),
        ],
    )
    return index


async def test_nearest_points_come_first_with_their_cosines(things: VectorIndex) -> None:
    found = await things.dense(NAME, unit(1, 0, 0), limit=3)
    assert [c.id for c in found] == ["a", "b", "c"]
    assert [c.score for c in found] == pytest.approx([1.0, 0.7071, 0.0], abs=1e-3)


async def test_candidates_have_their_payload(things: VectorIndex) -> None:
    (found,) = await things.dense(NAME, unit(1, 0, 0), limit=1)
    assert found.payload == {"color": "red", "size": 1, "tags": ["x", "y"]}


async def test_candidates_have_only_the_requested_fields(things: VectorIndex) -> None:
    (near,) = await things.dense(NAME, unit(1, 0, 0), limit=1, fields=["size", "nothing"])
    (lexical,) = await things.lexical(NAME, Terms((2,), (1.0,)), limit=1, fields=["color"])
    assert (near.id, near.payload) == ("a", {"size": 1})
    assert (lexical.id, lexical.payload) == ("b", {"color": "red"})
    assert [c.payload for c in await things.dense(NAME, unit(1, 0, 0), limit=9, fields=())] == [{}] * 4


async def test_a_candidate_has_the_fields_that_were_written_last(things: VectorIndex) -> None:
    async def read() -> list[tuple[str, Payload]]:
        found = await things.dense(NAME, unit(1, 0, 0), limit=1, fields=["size"])
        return [(c.id, c.payload) for c in found]

    assert await read() == [("a", {"size": 1})]
    await things.upsert(NAME, [point("a", unit(1, 0, 0), size=7)])
    assert await read() == [("a", {"size": 7})]
    await things.delete(NAME, ["a"])
    await things.upsert(NAME, [point("e", unit(1, 0, 0), size=9)])
    assert await read() == [("e", {"size": 9})]


async def test_terms_rank_by_dot_product_and_need_a_shared_term(things: VectorIndex) -> None:
    found = await things.lexical(NAME, Terms((1, 2), (1.0, 1.0)), limit=10)
    assert [c.id for c in found] == ["b", "a", "d"]
    assert [c.score for c in found] == pytest.approx([2.0, 1.5, 0.2])


async def test_no_terms_find_nothing(things: VectorIndex) -> None:
    assert await things.lexical(NAME, Terms(), limit=10) == []
    assert await things.lexical(NAME, Terms((99,), (1.0,)), limit=10) == []


@pytest.mark.req("D-02")
async def test_equal_scores_are_ordered_by_id_even_across_the_limit(things: VectorIndex) -> None:
    same = [point(f"t{n:02d}", unit(0, 1, 1), {7: 1.0}) for n in range(20)]
    await things.upsert(NAME, same[::-1])
    assert [c.id for c in await things.lexical(NAME, Terms((7,), (1.0,)), limit=5)] == [f"t{n:02d}" for n in range(5)]
    assert [c.id for c in await things.dense(NAME, unit(0, 1, 1), limit=5)] == [f"t{n:02d}" for n in range(5)]


@pytest.mark.req("D-02", "D-07")
@pytest.mark.parametrize("max_total", [10, 23, 100])
async def test_matches_are_paged_by_score_and_id_and_counted(
    things: VectorIndex, max_total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qdrant_index, "MAX_TIES", 1)
    many = [
        point(f"t{n:02d}", None, {7: 1.0 + n % 3, 8: 1e-8 * n}, color="red" if n % 4 else "blue") for n in range(40)
    ]
    await things.upsert(NAME, many[::-1])
    terms, red = Terms((7, 8), (1.0, 1.0)), Filter(must=(Condition("color", Op.EQ, "red"),))
    expected = [(f"t{n:02d}", 1.0 + n % 3) for n in sorted(range(40), key=lambda n: (-(n % 3), n)) if n % 4][:max_total]
    pages = [
        await things.match(NAME, terms, where=red, start=n, end=n + 7, max_total=max_total) for n in range(0, 42, 7)
    ]
    assert [(c.id, c.score) for page in pages for c in page.places] == expected
    assert {page.total for page in pages} == {len(expected)}


@pytest.mark.req("D-07")
async def test_no_terms_match_nothing(things: VectorIndex) -> None:
    assert await things.match(NAME, Terms(), end=10, max_total=10) == ([], 0)
    assert await things.match(NAME, Terms((99,), (1.0,)), end=10, max_total=10) == ([], 0)


async def test_a_filter_applies_to_rankings_counts_and_scrolls(things: VectorIndex) -> None:
    red = Filter(must=(Condition("color", Op.EQ, "red"),))
    assert {c.id for c in await things.dense(NAME, unit(0, 1, 0), where=red, limit=10)} == {"a", "b"}
    assert {c.id for c in await things.lexical(NAME, Terms((1, 3), (1.0, 1.0)), where=red, limit=10)} == {"a"}
    assert await things.count(NAME, red) == 2
    assert [c.id for c in await things.scroll(NAME, where=red)] == ["a", "b"]


@pytest.mark.req("K-04")
async def test_a_condition_may_have_thousands_of_values(things: VectorIndex) -> None:
    values = [*(f"color {n}" for n in range(5_000)), "red"]
    others: dict[str, object] = {"e": ["blue", "red"], "f": ["blue"], "g": [], "h": None, "i": 7, "j": "re"}
    await things.upsert(NAME, [point(i, unit(0, 1, 1), color=color) for i, color in others.items()])
    payloads = {c.id: c.payload for c in await things.scroll(NAME)}
    for op in (Op.IN, Op.NIN):
        where = Filter(must=(Condition("color", op, values),))
        expected = sorted(i for i, payload in payloads.items() if matches(where, payload, i))
        assert set(expected) & {"a", "b", "e"} == ({"a", "b", "e"} if op is Op.IN else set())
        assert sorted(c.id for c in await things.dense(NAME, unit(0, 1, 0), where=where, limit=10)) == expected
        assert [c.id for c in await things.scroll(NAME, where=where)] == expected


async def test_a_subset_names_points_by_id_and_by_condition(things: VectorIndex) -> None:
    green = Condition("color", Op.EQ, "green")
    named = {"a", *(c.id for c in await things.scroll(NAME, where=Filter(must=(green,))))}
    everything = {c.id for c in await things.scroll(NAME)}
    subset = Subset(frozenset({"a", "gone"}), (green,))
    for within, expected in [(subset, named), (replace(subset, excluded=True), everything - named)]:
        where = Filter(within=within)
        assert [c.id for c in await things.scroll(NAME, where=where)] == sorted(expected)
        assert {c.id for c in await things.dense(NAME, unit(0, 1, 0), where=where, limit=10)} <= expected
        assert await things.count(NAME, where) == len(expected)


async def test_an_upsert_replaces_a_point_completely(things: VectorIndex) -> None:
    await things.upsert(NAME, [point("a", unit(0, 0, 1), {9: 1.0}, color="black")])
    assert await things.count(NAME) == 4
    (found,) = await things.scroll(NAME, where=Filter(must=(Condition("color", Op.EQ, "black"),)))
    assert found.payload == {"color": "black"}
    assert [c.id for c in await things.lexical(NAME, Terms((1, 2), (1.0, 1.0)), limit=10)] == ["b", "d"]


async def test_points_are_deleted_and_unknown_ids_ignored(things: VectorIndex) -> None:
    await things.delete(NAME, ["a", "nobody"])
    await things.delete(NAME, [])
    assert [c.id for c in await things.scroll(NAME)] == ["b", "c", "d"]


async def test_a_scroll_gives_every_point_by_id_with_the_requested_fields(things: VectorIndex) -> None:
    await things.upsert(NAME, [point(f"m{n:04d}", unit(1, 2, 3), size=n) for n in range(2500)])
    found = await things.scroll(NAME, fields=["size"])
    assert [c.id for c in found] == sorted(["a", "b", "c", "d", *(f"m{n:04d}" for n in range(2500))])
    assert found[0].payload == {"size": 1}


async def test_a_point_may_lack_its_vector_or_its_terms(things: VectorIndex) -> None:
    await things.upsert(NAME, [point("words", None, {5: 1.0}), point("meaning", unit(0, 0, -1))])
    assert [c.id for c in await things.lexical(NAME, Terms((5,), (1.0,)), limit=5)] == ["words"]
    assert "words" not in {c.id for c in await things.dense(NAME, unit(0, 0, -1), limit=10)}
    assert await things.count(NAME) == 6


async def test_vectors_come_back_by_id_with_length_one(things: VectorIndex) -> None:
    await things.upsert(NAME, [point("words", None, {5: 1.0})])
    found = await things.vectors(NAME, ["b", "a", "words", "nobody", "a"])
    assert set(found) == {"a", "b"}
    assert all(v.dtype == np.float32 and v.shape == (3,) for v in found.values())
    assert np.allclose(found["b"], unit(1, 1, 0), atol=1e-6)
    assert np.allclose(found["a"], unit(1, 0, 0), atol=1e-6)
    assert await things.vectors(NAME, []) == {}


async def test_vectors_of_several_pages_are_read(things: VectorIndex) -> None:
    many = {f"v{n:04d}": unit(n, 1, 2) for n in range(1300)}
    await things.upsert(NAME, [point(i, v) for i, v in many.items()])
    found = await things.vectors(NAME, [*many])
    assert found.keys() == many.keys()
    assert all(np.allclose(found[i], v, atol=1e-6) for i, v in many.items())


async def test_ids_may_be_any_string(things: VectorIndex) -> None:
    odd = ["server__tool/ü?&", "日本", " ", "a" * 500]
    await things.upsert(NAME, [point(i, unit(1, 1, 1)) for i in odd])
    assert set(odd) <= {c.id for c in await things.scroll(NAME)}


async def test_a_field_name_may_contain_dots_and_spaces(things: VectorIndex) -> None:
    await things.upsert(NAME, [Point("z", unit(1, 1, 1), Terms(), {"meta.my field": "v", "meta": {"my field": "w"}})])
    where = Filter(must=(Condition("meta.my field", Op.EQ, "v"),))
    assert [c.id for c in await things.scroll(NAME, where=where)] == ["z"]


@pytest.mark.req("X-03")
async def test_a_collection_of_another_model_is_refused_with_what_to_do(things: VectorIndex) -> None:
    for other in (Collection(NAME, "model-b", 3), Collection(NAME, "model-a", 4)):
        with pytest.raises(Invalid, match="toolscript index rebuild"):
            await things.open(other)


async def test_a_collection_is_described_by_its_model_and_dimensions(things: VectorIndex) -> None:
    existing = await things.describe(NAME)
    assert existing is not None
    assert (existing.model, existing.dimensions, existing.exact) == ("model-a", 3, False)
    assert await things.describe("nothing") is None


@pytest.mark.req("D-04")
@pytest.mark.filterwarnings("ignore:Local mode performs exact")
async def test_a_collection_is_as_exact_as_it_was_last_opened(things: VectorIndex) -> None:
    for exact in (True, True, False):
        await things.open(replace(THINGS, exact=exact))
        assert [c.id for c in await things.dense(NAME, unit(1, 0, 0), limit=3)] == ["a", "b", "c"]
    await things.drop(NAME)
    await things.open(replace(THINGS, exact=True))
    existing = await things.describe(NAME)
    assert existing is not None
    assert existing.exact
    assert await things.count(NAME) == 0


async def test_opening_again_keeps_the_points(things: VectorIndex) -> None:
    await things.open(THINGS)
    assert await things.count(NAME) == 4


async def test_a_dropped_collection_does_not_exist(things: VectorIndex) -> None:
    await things.drop(NAME)
    assert await things.describe(NAME) is None
    await things.open(Collection(NAME, "model-b", 2))
    assert await things.count(NAME) == 0


async def test_a_collection_that_is_not_open_is_named(index: VectorIndex) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await index.dense("nowhere", unit(1, 0, 0), limit=1)


async def test_points_with_equal_scores_are_ordered_by_id(things: VectorIndex) -> None:
    await things.upsert(NAME, [point(f"t{n:02d}", unit(1, 0, 0)) for n in range(20)])
    for limit in (5, 10, 21):
        found = await things.dense(NAME, unit(1, 0, 0), limit=limit)
        assert [c.id for c in found] == ["a", *(f"t{n:02d}" for n in range(20))][:limit]


async def test_payloads_of_existing_points_are_read_completely_or_in_part(things: VectorIndex) -> None:
    assert await things.payloads(NAME, ["a", "nobody"]) == {"a": {"color": "red", "size": 1, "tags": ["x", "y"]}}
    assert await things.payloads(NAME, ["b", "d"], ["size"]) == {"b": {"size": 2}, "d": {}}
    assert await things.payloads(NAME, []) == {}
