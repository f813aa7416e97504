"""Cutting results above a budget, and reading what was kept of them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.fixtures.databases import open_memory_database
from tests.fixtures.faults import FaultyAdapter, hang, raising
from tests.fixtures.limits import set_limits
from toolscript.adapters.memory import HashedEmbedder
from toolscript.adapters.sql.results import SqlResults
from toolscript.domain.errors import Invalid, NotFound, Unavailable
from toolscript.domain.profiles import Profile
from toolscript.domain.servers import META_KEY
from toolscript.ports.models import Embedder
from toolscript.services.results import large_results as module
from toolscript.services.results.large_results import LargeResults
from toolscript.services.results.search import MAX_EMBEDDED

pytestmark = pytest.mark.req("G-18")

TOKENS = 1000
WORDS = "river stone cloud forest window music paper garden winter summer lantern harbour copper silver".split()
PICTURE = {"type": "image", "data": "x" * 50_000, "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "memo://a", "name": "a"}


class Bench:
    """Large results over a store in memory, with a clock and a profile that a test sets."""

    def __init__(self, store: Any, embedder: Embedder | None = None) -> None:
        self.now = 1000.0
        self.profile: Profile | None = None
        self.results = LargeResults(store, embedder, TOKENS, lambda _: self.profile, clock=lambda: self.now)

    async def cut(self, *texts: str, user: str = "ann", **more: Any) -> Mapping[str, Any]:
        content = [{"type": "text", "text": text} for text in texts]
        return await self.results.cut({"content": content, **more}, user)

    async def keep(self, text: str) -> str:
        return get_handle(await self.cut(text))

    async def read_all(self, handle: str, path: str | None = None) -> str:
        first = await self.results.read_page(handle, "ann", path=path)
        rest = [await self.results.read_page(handle, "ann", path=path, page=n) for n in range(2, first.pages + 1)]
        assert all(len(each.text.encode()) <= 4 * TOKENS for each in (first, *rest))
        return "".join(each.text for each in (first, *rest))


@pytest.fixture
async def store() -> AsyncIterator[SqlResults]:
    database = open_memory_database()
    yield SqlResults(database)
    await database.close()


@pytest.fixture
def bench(store: SqlResults) -> Bench:
    return Bench(store, HashedEmbedder(dimensions=64))


def write_lines(count: int, seed: int = 1) -> str:
    choose = random.Random(seed)
    return "\n".join(f"{n}: {' '.join(choose.choices(WORDS, k=8))}" for n in range(count))


def write_rows(count: int) -> dict[str, Any]:
    rows = [{"id": n, "text": line} for n, line in enumerate(write_lines(count).splitlines())]
    return {"rows": rows, "total": count}


def get_handle(result: Mapping[str, Any]) -> str:
    return str(result["_meta"][META_KEY]["handle"])


def get_text(result: Mapping[str, Any]) -> str:
    (text,) = [block["text"] for block in result["content"] if block["type"] == "text"]
    return str(text)


async def test_what_fits_the_budget_is_the_same_object(bench: Bench) -> None:
    fitting = {"content": [{"type": "text", "text": "x" * 4 * TOKENS}, PICTURE], "structuredContent": {"a": 1}}
    assert await bench.results.cut(fitting, "ann") is fitting
    without_content: dict[str, Any] = {"structuredContent": {"messages": []}}
    assert await bench.results.cut(without_content, "ann") is without_content


async def test_a_budget_of_zero_cuts_nothing(store: SqlResults) -> None:
    results = LargeResults(store, None, 0, lambda _: None)
    large = {"content": [{"type": "text", "text": "x" * 1_000_000}]}
    assert await results.cut(large, "ann") is large


async def test_a_large_text_becomes_its_beginning_its_size_and_how_to_go_on(bench: Bench) -> None:
    lines = write_lines(2000)
    result = await bench.cut(lines, _meta={"trace": 1}, isError=False)
    text, handle = get_text(result), get_handle(result)
    beginning, _, note = text.rpartition("\n")
    assert lines.startswith(f"{beginning}\n")
    assert len(text) <= TOKENS * 4 // 2
    tokens = -(-len(lines) // 4)
    assert f"about {tokens} tokens ({len(lines)} bytes)" in note
    assert f'read_result(handle="{handle}", query="…")' in note
    assert result["_meta"] == {"trace": 1, META_KEY: {"handle": handle, "tokens": tokens, "bytes": len(lines)}}
    assert result["isError"] is False
    assert await bench.read_all(handle) == lines


async def test_of_json_the_shape_is_shown(bench: Bench) -> None:
    rows = write_rows(1000)
    text = get_text(await bench.cut(json.dumps(rows)))
    assert '[Shape: {"rows": [1000 of {"id": number, "text": string}], "total": number}]' in text
    assert 'path="rows" takes a part of the JSON' in text


async def test_letters_of_other_scripts_count_by_their_bytes(bench: Bench) -> None:
    text = "".join(chr(0x4E00 + n % 20_000) for n in range(2000))
    result = await bench.cut(text)
    assert result["_meta"][META_KEY]["tokens"] == 1500
    assert await bench.read_all(get_handle(result)) == text


async def test_pictures_and_links_stay_and_texts_become_one(bench: Bench) -> None:
    resource = {"type": "resource", "resource": {"uri": "memo://long", "text": write_lines(500)}}
    content = [PICTURE, {"type": "text", "text": "Look:"}, resource, LINK]
    result = await bench.results.cut({"content": content}, "ann")
    assert [block["type"] for block in result["content"]] == ["image", "text", "resource_link"]
    assert get_text(result).startswith("Look:\n\nmemo://long:\n0: ")
    assert await bench.read_all(get_handle(result)) == f"Look:\n\nmemo://long:\n{write_lines(500)}"


@pytest.mark.parametrize(("kind", "is_left_out"), [("application/pdf", True), ("image/png", False), (None, True)])
async def test_a_large_blob_is_left_out_unless_clients_show_it(
    bench: Bench, kind: str | None, is_left_out: bool
) -> None:
    resource = {"uri": "memo://file", "blob": "A" * 8000} | ({"mimeType": kind} if kind else {})
    result = await bench.results.cut({"content": [{"type": "resource", "resource": resource}]}, "ann")
    if is_left_out:
        assert get_text(result) == f"[6000 bytes of {kind or 'an unknown type'} are left out: the resource memo://file]"
    else:
        assert result["content"] == [{"type": "resource", "resource": resource}]


async def test_structured_content_that_the_text_repeats_is_kept_once(bench: Bench) -> None:
    rows = write_rows(1000)
    for structured in (rows, {"result": rows}):
        result = await bench.cut(json.dumps(rows), structuredContent=structured)
        assert "structuredContent" not in result
        assert await bench.read_all(get_handle(result)) == json.dumps(rows)


async def test_structured_content_beside_other_text_comes_after_it(bench: Bench) -> None:
    rows = write_rows(1000)
    result = await bench.cut("1000 rows", structuredContent=rows)
    assert get_text(result).startswith('1000 rows\n\n{"rows": [{"id": 0')
    page = await bench.results.read_page(get_handle(result), "ann", path="rows.17.id")
    assert (page.text, page.pages) == ("17", 1)


async def test_the_text_of_a_resource_is_read_line_by_line(bench: Bench) -> None:
    answer = {"structuredContent": {"contents": [{"uri": "memo://a", "text": write_lines(1000)}]}}
    result = await bench.results.cut(answer, "ann")
    assert get_text(result).startswith(write_lines(1000)[:200])
    assert await bench.read_all(get_handle(result)) == write_lines(1000)


async def test_the_messages_of_a_prompt_have_paths(bench: Bench) -> None:
    message = {"role": "user", "content": {"type": "text", "text": write_lines(1000)}}
    result = await bench.results.cut({"structuredContent": {"messages": [message]}}, "ann")
    assert get_text(result).startswith('{"messages": [{"role": "user"')
    assert await bench.read_all(get_handle(result), "messages.0.content.text") == write_lines(1000)


async def test_an_error_keeps_its_flag_its_beginning_and_its_end(bench: Bench) -> None:
    result = await bench.cut(f"Traceback\n{write_lines(1000)}\nValueError: the reason", isError=True)
    assert result["isError"] is True
    assert get_text(result).startswith("Traceback\n")
    assert "\nValueError: the reason\n[Cut:" in get_text(result)


async def test_a_tool_that_needs_input_is_never_cut(bench: Bench) -> None:
    asking = {"resultType": "input_required", "inputRequests": {"a": {"method": "x" * 10_000}}}
    assert await bench.results.cut(asking, "ann") is asking


async def test_without_the_store_the_answer_is_cut_and_says_so(store: SqlResults) -> None:
    faulty = FaultyAdapter(store, "save", raising(Unavailable("the store does not answer: gone")))
    result = await Bench(faulty).cut(write_lines(1000))
    assert result["_meta"][META_KEY]["handle"] is None
    assert "It was not kept: the store does not answer. Call the tool again with narrower arguments.]" in get_text(
        result
    )


async def test_a_store_that_hangs_delays_the_answer_for_a_bounded_time(
    store: SqlResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, save_result=0.01)
    bench = Bench(FaultyAdapter(store, "save", hang))
    results = await asyncio.gather(*(bench.cut(write_lines(1000)) for _ in range(5)))
    assert all("It was not kept: the store does not answer." in get_text(result) for result in results)


async def test_a_result_above_the_bound_is_not_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 1000)
    result = await bench.cut(write_lines(1000))
    assert get_handle(result) == "None"
    assert "It was not kept: it is larger than" in get_text(result)


async def test_a_handle_is_for_its_caller_and_profile_for_an_hour(bench: Bench) -> None:
    handle = await bench.keep(write_lines(1000))
    assert (await bench.results.read_page(handle, "ann")).page == 1
    with pytest.raises(NotFound, match="no such result: 'r_"):
        await bench.results.read_page(handle, "bob")
    bench.profile = Profile("others")
    with pytest.raises(NotFound, match="for the caller that got it; call the tool again"):
        await bench.results.search(handle, "ann", "river")
    bench.profile = None
    bench.now += 3600
    with pytest.raises(NotFound, match="is kept for an hour"):
        await bench.results.read_page(handle, "ann")


async def test_a_page_that_does_not_exist_is_refused(bench: Bench) -> None:
    handle = await bench.keep(write_lines(500))
    for page in (-1, 100):
        with pytest.raises(Invalid, match="page: must be a whole number from 1 to "):
            await bench.results.read_page(handle, "ann", page=page)


async def test_text_has_no_paths(bench: Bench) -> None:
    with pytest.raises(Invalid, match="path: this result is not JSON: use query or page instead"):
        await bench.results.read_page(await bench.keep(write_lines(500)), "ann", path="rows")


async def test_a_query_finds_the_one_line_and_its_page(bench: Bench) -> None:
    lines = write_lines(3000).replace("1234:", "1234: the wombats escaped")
    handle = await bench.keep(lines)
    (hit,) = await bench.results.search(handle, "ann", "escaping wombat")
    assert "1234: the wombats escaped" in hit.text
    assert "1234: the wombats escaped" in (await bench.results.read_page(handle, "ann", page=hit.page)).text


async def test_a_query_finds_the_element_and_its_path(bench: Bench) -> None:
    rows = write_rows(3000)
    rows["rows"][1234]["text"] += " naïve Wombat"
    handle = await bench.keep(json.dumps(rows))
    (hit,) = await bench.results.search(handle, "ann", "naive wombats")
    assert hit.path is not None
    page = await bench.results.read_page(handle, "ann", path=hit.path)
    assert rows["rows"][1234] in json.loads(page.text)
    (same,) = await bench.results.search(handle, "ann", "wombat", path="rows.1000:2000")
    assert same.path is not None
    assert same.path.startswith("rows.1000:2000.")
    assert rows["rows"][1234] in json.loads((await bench.results.read_page(handle, "ann", path=same.path)).text)


async def test_a_hit_inside_a_long_string_has_its_path_and_page(bench: Bench) -> None:
    text = write_lines(2000).replace("1500:", "1500: wombat")
    handle = await bench.keep(json.dumps({"file": {"text": text}}))
    (hit,) = await bench.results.search(handle, "ann", "wombat")
    assert hit.path == "file.text"
    assert "wombat" in (await bench.results.read_page(handle, "ann", path=hit.path, page=hit.page)).text


async def test_hits_stay_within_the_budget(bench: Bench) -> None:
    handle = await bench.keep(write_lines(3000))
    hits = await bench.results.search(handle, "ann", "river stone", max_tokens=300)
    assert len(hits) > 1
    assert sum(len(hit.text) for hit in hits) <= 1200


async def test_a_query_without_a_word_of_the_result_finds_nothing_in_a_long_one(bench: Bench) -> None:
    assert await bench.results.search(await bench.keep(write_lines(3000)), "ann", "zebra") == []


async def test_in_a_short_result_meaning_alone_finds_something(bench: Bench) -> None:
    text = write_lines(MAX_EMBEDDED * 3)
    handle = get_handle(await bench.results.cut({"content": [{"type": "text", "text": text}]}, "ann", 500))
    assert await bench.results.search(handle, "ann", "zebra")


async def test_without_a_model_words_find_the_same(store: SqlResults) -> None:
    bench = Bench(store)
    handle = await bench.keep(write_lines(3000).replace("1234:", "1234: wombat"))
    (hit,) = await bench.results.search(handle, "ann", "wombat")
    assert "1234: wombat" in hit.text


async def test_a_model_that_fails_leaves_the_ranking_by_words(store: SqlResults) -> None:
    failing: Any = FaultyAdapter(HashedEmbedder(dimensions=64), "embed_query", raising(Unavailable("gone")))
    bench = Bench(store, failing)
    handle = await bench.keep(write_lines(3000).replace("1234:", "1234: wombat"))
    assert len(await bench.results.search(handle, "ann", "wombat")) == 1
