"""Skills over a thousand real tools, with the model in the package: everything is sorted, searches hold while it
changes, and looking into skills first costs hardly any answer."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item, SuggestionStatus
from toolscript.evaluation.datasets import JudgedQuery, ToolSet, read_set
from toolscript.evaluation.metrics import mean
from toolscript.evaluation.run import Evaluation, EvaluationResult
from toolscript.services.catalogue.demo import load_demo_items, load_demo_pairs, parse_item
from toolscript.services.tools import ranking
from toolscript.services.tools.hierarchical_search import HierarchicalQuery, HierarchicalResults
from toolscript.settings import load_settings
from toolscript.surfaces.json.hierarchical import build_hierarchical_response

# Every sixth of 5 792 tools, and so of most servers: embedding all of them takes minutes and says the same.
STEP = 6
CHANGED = 200
# Between searches while a sync runs: without it there are thousands, which take the processor from the sync.
PAUSE_SECONDS = 0.01
# Of sets with many queries, so many, spread over the set: more would take minutes and say the same.
QUERIES = 80
SETS = (
    "azure_mcp",
    "ironclaw_toolsearch",
    "mcpagentbench",
    "mcpproxy_golden",
    "mcptoolbenchpp",
    "metatool",
    "ultratool",
)


@asynccontextmanager
async def open_catalogue(folder: Path) -> AsyncIterator[App]:
    async with open_app(load_settings(variables={}, data_dir=folder, quarantine="open")) as app:
        yield app


@pytest.fixture(scope="module")
def real_tools(shared_data: Path) -> list[Item]:
    """966 tools of hundreds of servers."""
    packed = (shared_data / "tools" / "mcp_catalog_A" / "tools.jsonl.gz").read_bytes()
    return [parse_item(json.loads(line)) for line in gzip.decompress(packed).decode().splitlines()[::STEP]]


@pytest.fixture(scope="module")
async def large(
    anyio_backend: str, real_tools: list[Item], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[App]:
    async with open_catalogue(tmp_path_factory.mktemp("large")) as app:
        await app.catalogue.sync.run(real_tools)
        yield app


def without_times(found: HierarchicalResults) -> dict[str, Any]:
    response = build_hierarchical_response(found, with_schemas=True)
    return {**response, "metadata": {k: v for k, v in response["metadata"].items() if not k.endswith("_ms")}}


async def state(app: App) -> tuple[object, ...]:
    """All that a sync could change."""
    return (
        await app.stores.items.get_fingerprints(),
        await app.stores.skills.list_suggestions(),
        await app.index.scroll("mcp_unified_search"),
        await app.index.scroll("mcp_skills"),
    )


@pytest.mark.extended
@pytest.mark.req("H-10", "H-11")
async def test_nearly_every_tool_has_a_skill_and_every_other_one_suggestion(large: App, real_tools: list[Item]) -> None:
    stored = await large.stores.items.get_items()
    assert {s.item.id for s in stored} == {item.id for item in real_tools}
    placed = {s.item.id for s in stored if s.assignments}
    assert len(placed) >= 0.95 * len(stored)
    for each in stored:
        assert len(each.assignments) <= 3
        assert sum(a.is_primary for a in each.assignments) == bool(each.assignments)
        assert all(a.confidence >= 0.5 for a in each.assignments)
    waiting = Counter(s.source_item_id for s in await large.stores.skills.list_suggestions(SuggestionStatus.PENDING))
    assert waiting == dict.fromkeys({s.item.id for s in stored} - placed, 1)


@pytest.mark.extended
@pytest.mark.req("H-13", "H-14")
async def test_a_second_sync_of_the_same_changes_nothing_and_embeds_nothing(large: App, real_tools: list[Item]) -> None:
    before, embedded = await state(large), large.catalogue.sync.embedded
    report = await large.catalogue.sync.run(real_tools)
    assert (report.added, report.changed, report.vanished, report.indexed, report.embedded) == (0, 0, 0, 0, 0)
    assert report.classified == 0
    await large.catalogue.sync.index_catalogue()
    assert large.catalogue.sync.embedded == embedded
    assert await state(large) == before


@pytest.mark.extended
@pytest.mark.req("H-01")
async def test_a_hundred_equal_queries_at_once_get_equal_answers(large: App) -> None:
    """EC-006."""
    ask = HierarchicalQuery("open a pull request with my changes and ask for a review")
    answers = await asyncio.gather(*(large.tools.hierarchical_search.search(ask) for _ in range(100)))
    first = without_times(answers[0])
    assert first["tools"]
    assert all(without_times(found) == first for found in answers)


def is_consistent(found: HierarchicalResults, counts: Sequence[Mapping[str, int]]) -> bool:
    """Every tool belongs to a matched skill or to none; every skill has as many tools as it had before or has after."""
    used, skills = set(found.skill_ids_used or ()), [set(tool.payload["skill_ids"]) for tool in found.tools]
    return all(used & own for own in skills if used and own) and all(
        hit.skill.tool_count in {c.get(hit.skill.id, 0) for c in counts} for hit in found.skills
    )


def is_degraded(found: HierarchicalResults) -> bool:
    """Whether a part of the search failed or took too long, as it does on a machine that stands still for seconds."""
    return bool(found.report.degraded)


@pytest.mark.extended
@pytest.mark.req("H-01", "H-13", "H-14")
async def test_searches_hold_while_hundreds_of_tools_change(large: App, real_tools: list[Item]) -> None:
    """EC-007. They become tools for other things, so that they move from skill to skill."""
    offered = list({item.id: item for item in real_tools}.values())
    few = [item for item in offered if len(item.description) < 200]
    turned = dict(zip([i.id for i in few[:CHANGED]], reversed(few[-CHANGED:]), strict=True))
    changed = [replace(i, description=turned[i.id].description) if i.id in turned else i for i in offered]
    queries = [query for query, _ in load_demo_pairs()]
    before, answers = await large.stores.skills.count_items(), []
    syncing = asyncio.create_task(large.catalogue.sync.run(changed))
    for number in count():
        if syncing.done():
            break
        ask = HierarchicalQuery(queries[number % len(queries)], limit=1 + number // len(queries) % 50)
        answers.append(await large.tools.hierarchical_search.search(ask))
        await asyncio.wait({syncing}, timeout=PAUSE_SECONDS)
    report = await syncing
    assert report.changed >= 0.9 * CHANGED
    counts = [before, await large.stores.skills.count_items()]
    assert counts[0] != counts[1]
    assert len(answers) >= 20
    assert sum(map(is_degraded, answers)) <= 0.1 * len(answers)
    assert [found for found in answers if not is_consistent(found, counts)] == []
    after = [await large.tools.hierarchical_search.search(HierarchicalQuery(query)) for query in queries]
    assert sum(map(is_degraded, after)) <= 0.1 * len(after)
    assert [found for found in after if not is_consistent(found, counts[1:])] == []


@pytest.mark.extended
@pytest.mark.req("H-01")
async def test_a_long_request_finds_the_skill_of_one_of_its_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = (
        "Our office moves to another city next month and I need help with everything around it. First translate the "
        "lease contract from Portuguese to English. Then refund the customer who was charged twice by mistake. Last, "
        "restart the container that keeps crashing in the production cluster."
    )
    async with open_catalogue(tmp_path) as app:
        await app.catalogue.sync.run(load_demo_items())
        first, *_ = await app.tools.hierarchical_search.find_skills(request)
        monkeypatch.setattr(ranking, "split_needs", lambda _: [])
        uncut, *_ = await app.tools.hierarchical_search.find_skills(request)
    assert first.skill.id == uncut.skill.id == "deployment_and_containers"
    assert first.score > uncut.score + 0.1


@pytest.mark.req("H-02")
async def test_the_score_of_a_skill_says_how_likely_it_has_a_tool_for_the_request(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as app:
        await app.catalogue.sync.run(load_demo_items())

        async def score_best(request: str) -> float:
            return (await app.tools.hierarchical_search.find_skills(request, threshold=0.0))[0].score

        served = sorted([await score_best(query) for query, _ in load_demo_pairs()[:60]])
        noise = [await score_best(text) for text in ("asdf qwer zxcv", "tell me a joke", "you are so funny haha")]
    # Quarters at 0.62, 0.82 and 0.94, the highest 0.99; noise has 0.02 to 0.08.
    assert max(noise) < 0.25
    assert 0.65 < served[30] < 0.95
    assert served[45] - served[15] > 0.1
    assert served[-1] < 1.0


def shorten(data: ToolSet) -> ToolSet:
    """The set with at most so many of its queries, none longer than a query may be."""
    step = max(1, -(-len(data.queries) // QUERIES))
    queries = [JudgedQuery(q.text[:1000], q.grades, q.groups) for q in data.queries[::step]]
    return replace(data, queries=queries, unanswerable=[])


@pytest.mark.extended
@pytest.mark.req("H-01", "H-07")
async def test_skills_first_loses_hardly_any_result_and_saves_a_large_part_of_the_work(
    shared_data: Path, tmp_path: Path
) -> None:
    outcomes: list[tuple[EvaluationResult, EvaluationResult]] = []
    unanswered: list[bool] = []
    async with open_catalogue(tmp_path) as app:
        evaluation = Evaluation(
            app.catalogue.sync,
            app.tools.search,
            app.texts.ingest_documents,
            app.texts.document_search,
            app.tools.hierarchical_search,
        )
        for name in SETS:
            data = read_set(shared_data / "tools" / name)
            assert isinstance(data, ToolSet)
            some = shorten(data)
            outcomes.append((await evaluation.run(some, "hierarchical"), await evaluation.run(some, "direct")))
            found = [
                await app.tools.hierarchical_search.search(HierarchicalQuery(q.text, include_schemas=False))
                for q in some.queries
            ]
            unanswered += [not each.tools for each in found]
    recalls = [[mean(outcome.scores)["r@5"] for outcome in pair] for pair in outcomes]
    through_skills, everywhere = (sum(column) / len(SETS) for column in zip(*recalls, strict=True))
    assert through_skills >= everywhere - 0.015, dict(zip(SETS, recalls, strict=True))
    shares = [hierarchical.share_searched or 1.0 for hierarchical, _ in outcomes]
    assert sum(shares) / len(shares) <= 0.20, dict(zip(SETS, shares, strict=True))
    assert sum(unanswered) <= 0.05 * len(unanswered)
