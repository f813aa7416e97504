"""What every item store promises: SQLite in a file, SQLite in memory, PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.contracts.catalogue_items import PROMPT, READ, TERMS, WRITE, get_fingerprint
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.pins import SqlPins
from toolscript.domain.catalog import (
    Assignment,
    Item,
    ItemType,
    Origin,
    Skill,
)
from toolscript.domain.quarantine import Pin, QuarantineCause, QuarantineState
from toolscript.ports.stores import ItemStore, PinStore, SkillStore

pytestmark = pytest.mark.req("X-02", "H-15")


async def test_an_item_comes_back_as_it_was_saved(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, TERMS)])
    (stored,) = await item_store.get_items()
    assert stored.item == READ
    assert list(stored.item.input_schema["properties"]) == ["z", "a"]  # type: ignore[index]
    assert (stored.terms, stored.is_active, stored.assignments) == (TERMS, True, ())


async def test_the_definition_of_a_prompt_comes_back_as_its_server_gave_it(item_store: ItemStore) -> None:
    defined = replace(PROMPT, definition={"name": "read", "icons": [{"src": "x"}], "_meta": {"é": None}})
    await item_store.save_items([(defined, TERMS)])
    assert [s.item for s in await item_store.get_items()] == [defined]
    assert defined.digest != PROMPT.digest


async def test_a_tool_and_a_prompt_may_share_their_name(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, TERMS), (PROMPT, TERMS)])
    assert [s.item for s in await item_store.get_items()] == [PROMPT, READ]


async def test_saving_again_replaces_and_keeps_the_number(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, TERMS)])
    (before,) = await item_store.get_items()
    changed = replace(READ, description="Read it", input_schema=None)
    await item_store.save_items([(changed, frozenset({9}))])
    (after,) = await item_store.get_items()
    assert (after.number, after.item, after.terms) == (before.number, changed, frozenset({9}))


async def test_fingerprints_are_read_by_server(item_store: ItemStore, skill_store: SkillStore) -> None:
    elsewhere = Item("mail", "send")
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS), (elsewhere, TERMS)])
    await item_store.deactivate([WRITE.id])
    await skill_store.save_skills([Skill("reading", "Reading")])
    await skill_store.assign(READ.id, [Assignment("reading", 0.9, True)])
    numbers = {s.item.id: s.number for s in await item_store.get_items(active_only=False)}
    fingerprints = await item_store.get_fingerprints(["files"])
    assert [(m.id, m.server, m.number, m.digest, m.is_active) for m in fingerprints] == [
        (READ.id, "files", numbers[READ.id], READ.digest, True),
        (WRITE.id, "files", numbers[WRITE.id], WRITE.digest, False),
    ]
    assert fingerprints[0].assignments == (Assignment("reading", 0.9, True),)
    assert [m.id for m in await item_store.get_fingerprints()] == sorted([READ.id, WRITE.id, elsewhere.id])
    assert await item_store.get_fingerprints([]) == []


async def test_a_vanished_item_is_kept_inactive_until_it_returns(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await item_store.deactivate([READ.id, "files__nothing"])
    assert [s.item for s in await item_store.get_items()] == [WRITE]
    assert [s.is_active for s in await item_store.get_items(active_only=False)] == [False, True]
    await item_store.save_items([(READ, TERMS)])
    assert [s.item for s in await item_store.get_items()] == [READ, WRITE]


async def test_schemas_are_read_of_the_requested_active_items(item_store: ItemStore) -> None:
    """H-05."""
    whole = Item("s", "whole", input_schema={"z": 1, "a": [2]}, output_schema={"b": {}}, annotations={"readOnly": True})
    bare, gone, other = Item("s", "bare"), Item("s", "gone", input_schema={}), Item("s", "other")
    await item_store.save_items([(item, TERMS) for item in (whole, bare, gone, other)])
    await item_store.deactivate([gone.id])
    found = await item_store.get_schemas([bare.id, "unknown", gone.id, whole.id])
    assert found == {
        bare.id: (None, None, None),
        whole.id: (whole.input_schema, whole.output_schema, whole.annotations),
    }
    assert list(found[whole.id][0] or ()) == ["z", "a"]
    assert await item_store.get_schemas([]) == {}


async def test_any_number_of_items_can_be_read_by_id(item_store: ItemStore) -> None:
    many = [Item("bulk", f"tool{n:05d}") for n in range(5000)]
    await item_store.save_items([(item, frozenset({n})) for n, item in enumerate(many)])
    wanted = [item.id for item in many[:4000]]
    assert [s.item.id for s in await item_store.get_items([*wanted, "unknown"])] == wanted
    assert await item_store.get_items([]) == []


async def test_term_counts_follow_the_active_items(item_store: ItemStore) -> None:
    await item_store.save_items([(READ, frozenset({1, 2})), (WRITE, frozenset({2, 3}))])
    counts = await item_store.count_terms([1, 2, 3, 4])
    assert (counts.documents, counts.documents_with_term) == (2, {1: 1, 2: 2, 3: 1})
    await item_store.save_items([(READ, frozenset({3}))])
    assert (await item_store.count_terms([1, 2, 3])).documents_with_term == {2: 1, 3: 2}
    await item_store.deactivate([WRITE.id])
    await item_store.deactivate([WRITE.id])
    counts = await item_store.count_terms([1, 2, 3])
    assert (counts.documents, counts.documents_with_term) == (1, {3: 1})


async def test_an_empty_catalogue_counts_nothing(item_store: ItemStore) -> None:
    counts = await item_store.count_terms([1])
    assert (counts.documents, counts.documents_with_term) == (0, {})


async def test_concurrent_writers_lose_nothing(item_store: ItemStore) -> None:
    async def save(n: int) -> None:
        await item_store.save_items([(Item("many", f"t{n}"), frozenset({7, n + 100}))])

    await asyncio.gather(*(save(n) for n in range(40)))
    counts = await item_store.count_terms([7])
    assert (counts.documents, counts.documents_with_term) == (40, {7: 40})
    assert len(await item_store.get_items()) == 40


async def test_a_store_that_works_answers_a_ping(item_store: ItemStore) -> None:
    await item_store.ping()


async def test_writers_of_the_same_items_count_them_once(item_store: ItemStore) -> None:
    items = [(Item("many", f"t{n:02d}"), frozenset({7, n + 100})) for n in range(30)]
    await asyncio.gather(*(item_store.save_items(items if n % 2 else items[::-1]) for n in range(12)))
    counts = await item_store.count_terms([7, 100])
    assert (counts.documents, counts.documents_with_term) == (30, {7: 30, 100: 1})


async def test_definition_characters_are_counted_for_active_items(item_store: ItemStore) -> None:
    assert await item_store.count_definition_characters() == 0
    item = Item("s", "größe", "Größe 尺寸", input_schema={"äöü": "尺"}, output_schema={"a": 1}, annotations={"b": 2})
    await item_store.save_items([(item, TERMS)])
    assert await item_store.count_definition_characters() == len("größe") + len("Größe 尺寸") + len(
        '{"äöü": "尺"}'
    ) + len('{"a": 1}')
    await item_store.save_items([(WRITE, TERMS)])
    await item_store.deactivate([item.id])
    assert await item_store.count_definition_characters() == len("write")


@pytest.mark.req("H-09")
async def test_items_of_a_skill_are_ordered_by_confidence_and_counted(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(item, TERMS) for item in (READ, WRITE, PROMPT)])
    await skill_store.save_skills([Skill("a", "A"), Skill("b", "B"), Skill("empty", "Empty")])
    await skill_store.assign(READ.id, [Assignment("a", 0.7), Assignment("b", 0.9, True)])
    await skill_store.assign(WRITE.id, [Assignment("a", 0.8, True)])
    await skill_store.assign(PROMPT.id, [Assignment("a", 0.7, True)])
    found = await item_store.get_items_of_skill("a")
    assert [s.item for s in found] == [WRITE, PROMPT, READ]
    assert found[2].assignments == (Assignment("b", 0.9, True), Assignment("a", 0.7))
    assert await skill_store.count_items() == {"a": 3, "b": 1}
    await item_store.deactivate([WRITE.id])
    assert [s.item for s in await item_store.get_items_of_skill("a")] == [PROMPT, READ]
    assert await skill_store.count_items() == {"a": 2, "b": 1}
    assert await item_store.get_items_of_skill("empty") == await item_store.get_items_of_skill("unknown") == []


async def test_the_primary_skill_comes_first_among_equal_confidences(
    item_store: ItemStore, skill_store: SkillStore
) -> None:
    await item_store.save_items([(READ, TERMS)])
    await skill_store.save_skills([Skill("a", "A"), Skill("b", "B")])
    both = (Assignment("b", 1.0, True, Origin.HUMAN), Assignment("a", 1.0, False, Origin.HUMAN))
    await skill_store.assign(READ.id, both[::-1])
    assert (await item_store.get_items())[0].assignments == both


async def test_fingerprints_can_be_read_by_id(item_store: ItemStore, skill_store: SkillStore) -> None:
    await item_store.save_items([(READ, TERMS), (WRITE, TERMS)])
    await skill_store.save_skills([Skill("a", "A")])
    await skill_store.assign(WRITE.id, [Assignment("a", 0.9, True)])
    (fingerprint,) = await item_store.get_fingerprints(item_ids=[WRITE.id, "files__never"])
    assert fingerprint == await get_fingerprint(item_store, WRITE)
    assert await item_store.get_fingerprints(item_ids=[]) == []


DAY = 86_400.0


async def test_servers_are_those_that_any_configuration_names(item_store: ItemStore) -> None:
    async def name(configuration: str, *servers: str, only: bool = False) -> frozenset[str]:
        return await item_store.set_servers(configuration, servers, only=only, now=DAY, max_age=DAY)

    assert await name("one", "a", "b") == {"a", "b"}
    assert await name("two", "b", "c") == {"a", "b", "c"}
    assert await name("one", "d") == {"b", "c", "d"}
    assert await name("two") == {"d"}
    assert await name("three", "e", only=True) == {"e"}


@pytest.mark.req("X-08", "G-20")
async def test_a_configuration_is_forgotten_on_request_and_when_nobody_uses_it(item_store: ItemStore) -> None:
    async def name(configuration: str, *servers: str, now: float) -> frozenset[str]:
        return await item_store.set_servers(configuration, servers, only=False, now=now, max_age=DAY)

    await name("one", "a", now=1)
    await name("two", "a", "b", now=2)
    assert await item_store.list_configurations() == {"one": {"a"}, "two": {"a", "b"}}
    assert await item_store.forget_configuration("two") == {"a"}
    assert await item_store.forget_configuration("two") == {"a"}
    assert await name("three", "c", now=DAY) == {"a", "c"}
    assert await name("three", "c", now=DAY + 2) == {"c"}


PINNED = Item("files", "read", "Reads a file \u200b😀", input_schema={"type": "object", "required": ["b", "a"]})
GREETING = Item("mail", "greet", type=ItemType.PROMPT, title="Greet", definition={"name": "greet", "arguments": []})


@pytest.fixture
def pins(database: Database) -> PinStore:
    return SqlPins(database)


@pytest.mark.req("G-15")
async def test_pins_come_back_as_they_were(pins: PinStore) -> None:
    approved = Pin(PINNED.id, "files", approved=PINNED)
    waiting = Pin(
        GREETING.id,
        "mail",
        offered=GREETING,
        cause=QuarantineCause.SUSPICIOUS,
        reason="its title",
        passage="hidden",
        state=QuarantineState.REJECTED,
        since=1.5,
    )
    await pins.save_pins([waiting, approved])
    assert await pins.get_pins() == [approved, waiting]
    assert await pins.get_pins([PINNED.id, "files__unknown"]) == [approved]
    assert await pins.get_pins(only_quarantined=True) == [waiting]
    assert await pins.get_pins([]) == []


@pytest.mark.req("G-15")
async def test_approved_definitions_that_await_review_come_page_by_page(pins: PinStore) -> None:
    items = [replace(PINNED, name=name) for name in "abcd"]
    a, b, c, d = (Pin(item.id, "files", approved=item, awaits_review=True) for item in items)
    in_quarantine = replace(b, offered=GREETING, cause=QuarantineCause.CHANGED)
    await pins.save_pins([a, in_quarantine, replace(c, awaits_review=False), d])
    assert await pins.get_unreviewed_pins(after="", limit=10) == [a, d]
    assert await pins.get_unreviewed_pins(after="", limit=1) == [a]
    assert await pins.get_unreviewed_pins(after=a.item_id, limit=1) == [d]
    assert await pins.get_unreviewed_pins(after=d.item_id, limit=1) == []


@pytest.mark.req("G-15")
async def test_the_digests_of_a_server_are_those_that_may_be_used(pins: PinStore) -> None:
    changed = replace(PINNED, description="Reads every file")
    await pins.save_pins([Pin(PINNED.id, "files", approved=PINNED), Pin(GREETING.id, "mail", approved=GREETING)])
    assert await pins.get_approved_digests(["files"]) == {PINNED.id: PINNED.digest}
    await pins.save_pins([Pin(PINNED.id, "files", approved=PINNED, offered=changed, cause=QuarantineCause.CHANGED)])
    assert await pins.get_approved_digests(["files", "mail"]) == {PINNED.id: "", GREETING.id: GREETING.digest}
    assert await pins.get_approved_digests([]) == {}
