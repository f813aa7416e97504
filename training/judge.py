"""Runs judged requests through the product's ranking, and notes what it knew of each answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolscript.app.app import App, open_app
from toolscript.domain.catalog import Item
from toolscript.domain.deadline import Deadline
from toolscript.domain.errors import Invalid
from toolscript.domain.search import SearchReport
from toolscript.evaluation.datasets import ToolSet, read_set
from toolscript.retrieval.learned_ranking import Signals
from toolscript.services.catalogue.demo import parse_item
from toolscript.services.catalogue.visibility import View
from toolscript.services.tools.hybrid_search import RULES
from toolscript.services.tools.ranking import Blend
from toolscript.settings import load_settings
from training.fit import Judged
from training.prepare import read_rows, read_servers

# Requests of these kinds are served by no catalogue, however large.
NEVER_SERVED = ("chat", "noise")
# Requests of one set that are judged in the large catalogue.
SAMPLE = 150
SECONDS = 60.0
LARGE = "all tools"
DIGITS = 4
NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Tools by id, requests with the ids that serve them (none where no tool does), and the group for leaving out."""

    name: str
    group: str
    items: Mapping[str, Item]
    requests: Sequence[tuple[str, frozenset[str]]]
    noise: frozenset[str] = NOBODY
    """The requests that are small talk or noise."""


def judge(catalogues: Iterable[Catalogue], model: str | None = None) -> dict[str, list[Judged]]:
    """The judgements for searches by meaning and words, and by words alone."""
    return asyncio.run(_judge(catalogues, model))


def write_judged(path: Path, judged: Iterable[Judged]) -> None:
    """Writes judgements, a line each: what was known of each answer, and whether it was right, without any text."""
    rows = (asdict(each) | {"signals": [round(value, DIGITS) for value in each.signals]} for each in judged)
    with gzip.GzipFile(path, "wb", mtime=0) as file:  # the same judgements give the same bytes
        file.write("".join(json.dumps(row) + "\n" for row in rows).encode())


def read_judged(path: Path) -> list[Judged]:
    """The judgements of a file."""
    return [Judged(**row | {"signals": Signals(*row["signals"])}) for row in read_rows([path])]


def read_catalogues(
    sets: Sequence[Path], requests: Path, servers: Path, further: Sequence[Path]
) -> Iterator[Catalogue]:
    """The sets, the project's own requests in catalogues of real servers, and the sets' requests again in one large
    catalogue of all their tools and further ones. There only small talk and noise are certain to be served by none."""
    found = [data for data in map(read_set, sets) if isinstance(data, ToolSet)]
    for data in found:
        several = [(query.text, frozenset(query.grades)) for query in data.queries]
        unserved = [(text, NOBODY) for text in data.unanswerable]
        yield Catalogue(data.name, data.name, data.items, [*several, *unserved])
    never: list[str] = []
    own: dict[tuple[str, ...], list[tuple[str, frozenset[str]]]] = {}
    for name in ("answerable", "unanswerable"):
        for row in read_rows([requests / f"{name}.jsonl"]):
            own.setdefault(tuple(row["catalogue"]), []).append((row["query"], frozenset(row.get("relevant", ()))))
            if row.get("kind") in NEVER_SERVED:
                never.append(row["query"])
    for names, several in sorted(own.items()):
        name = "+".join(names)
        items = {f"{item.server}__{item.name}": item for item in read_servers(servers, names)}
        yield Catalogue(name, name, items, several, frozenset(never))
    if not further:
        return
    everything = {f"{data.name}/{i}": item for data in found for i, item in data.items.items()}
    everything |= {f"further/{row['id']}": parse_item(row) for row in read_rows(further)}
    unique = {item.id: i for i, item in reversed(everything.items())}
    large = {i: item for i, item in everything.items() if unique[item.id] == i}
    for data in found:
        several = [(q.text, frozenset(f"{data.name}/{i}" for i in q.grades)) for q in data.queries]
        several = [(text, ids) for text, ids in several if ids <= large.keys()]
        step = max(1, len(several) // SAMPLE)
        yield Catalogue(LARGE, data.name, large, several[::step][:SAMPLE])
    yield Catalogue(LARGE, LARGE, large, [(text, NOBODY) for text in never], frozenset(never))


async def _judge(catalogues: Iterable[Catalogue], model: str | None) -> dict[str, list[Judged]]:
    found: dict[str, list[Judged]] = {"hybrid": [], "words": []}
    with tempfile.TemporaryDirectory() as folder:
        changed: dict[str, Any] = {"search_model": model} if model else {}
        async with open_app(load_settings(data_dir=Path(folder), **changed)) as app:
            for catalogue in catalogues:
                await app.catalogue.sync.run(list(catalogue.items.values()))
                for text, ids in catalogue.requests:
                    relevant = {catalogue.items[i].id for i in ids}
                    for curve, blend in (("hybrid", Blend.HYBRID), ("words", Blend.KEYWORD)):
                        each = await _judge_one(app, catalogue, text, relevant, blend)
                        found[curve] += [each] if each else []
                print(f"{catalogue.name}: {len(catalogue.items)} tools, {len(catalogue.requests)} requests", flush=True)
    return found


async def _judge_one(app: App, catalogue: Catalogue, text: str, relevant: set[str], blend: Blend) -> Judged | None:
    """None for a request that names a tool, or has no words: curves do not decide these."""
    facts = await app.catalogue.snapshots.current().facts()
    report, deadline = SearchReport(), Deadline(SECONDS, "tools")
    try:
        prepared = await app.tools.ranking.prepare(text, facts, report, deadline, RULES, blend)
    except Invalid:
        return None
    if facts.names.match(text).exact:
        return None
    ranked = await app.tools.ranking.rank(text, prepared, facts, report, View(), blend=blend)
    first = ranked.best[0][0] if ranked.best else ""
    is_noise = text in catalogue.noise
    return Judged(catalogue.name, catalogue.group, ranked.signals, bool(relevant), first in relevant, is_noise)
