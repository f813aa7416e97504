"""Writes all that training and measuring read into one file: tools as the product embeds them, with their queries."""

from __future__ import annotations

import gzip
import json
import pydoc_data.topics
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.evaluation.datasets import AnySet, BookSet, ToolSet, read_set
from toolscript.retrieval.text.item_text import build_document_text, build_item_text
from toolscript.retrieval.text.words import split_identifier
from toolscript.services.catalogue.demo import parse_item
from training.unlabelled import cut_sentences, make_requests

# Whole servers: a tool's siblings would give its queries away.
VALIDATION_SHARE = 0.08
FIGURES_ONLY = "held_out"
MIN_PASSAGE, MAX_PASSAGE = 80, 600


def prepare(
    out: Path,
    *,
    tools: Sequence[Path],
    queries: Sequence[Path],
    tasks: Sequence[Path] = (),
    operations: Sequence[Path] = (),
    servers: Path | None = None,
    catalogues: Sequence[Path] = (),
    sets: Sequence[Path] = (),
    seed: int = 7,
) -> None:
    """Writes the file. Lines of `tools`: server, name, description, input_schema; of `queries`: server, name, queries;
    of `tasks`: task, tools; of `operations`: catalogue, query, relevant, near_miss, where the folder `servers` has the
    tools that `tools` does not have. `catalogues` are further tools without queries; `sets` are folders of evaluation
    sets, which are only measured with. Queries of tools that are not in `tools` are left out, and those marked as held
    out."""
    source = random.Random(seed)
    items = [parse_item(row) for row in read_rows(tools)]
    contrasts = list(read_rows(operations))
    items += _read_missing(contrasts, items, servers)
    ids = {f"{item.server}__{item.name}": number for number, item in enumerate(items)}
    numbers = {(item.server, item.name): number for number, item in enumerate(items)}
    pairs = [
        [numbers[row["server"], row["name"]], query]
        for row in read_rows(queries)
        if (row["server"], row["name"]) in numbers and row.get("split") != FIGURES_ONLY
        for query in row.get("queries") or [row["query"]]
    ]
    jobs = [
        [[numbers[tool["server"], tool["name"]] for tool in row["tools"]], row["task"]]
        for row in read_rows(tasks)
        if all((tool["server"], tool["name"]) in numbers for tool in row["tools"])
    ]
    names = sorted({item.server for item in items})
    source.shuffle(names)
    described, others = ([_describe(i) for i in some] for some in (items, map(parse_item, read_rows(catalogues))))
    content = {
        "tools": described,
        "queries": pairs,
        "tasks": jobs,
        "operations": [
            [row["query"], *([ids[key] for key in row[kind] if key in ids] for kind in ("relevant", "near_miss"))]
            for row in contrasts
        ],
        "validation_servers": names[: round(VALIDATION_SHARE * len(names))],
        "catalogue": others,
        "unlabelled": _make_unlabelled(described, others, jobs, source),
        "passages": list(_read_passages()),
        "sets": {path.name: _describe_set(read_set(path)) for path in sets},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(out, "wb", mtime=0) as file:  # the same data give the same bytes
        file.write(json.dumps(content, ensure_ascii=False).encode())


def _read_missing(operations: Iterable[Mapping[str, Any]], known: Iterable[Item], servers: Path | None) -> list[Item]:
    """The tools that the requests name and that are not known yet."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for row in operations:
        for server, key in product(row["catalogue"], (*row["relevant"], *row["near_miss"])):
            if key.startswith(f"{server}__"):
                wanted[server].add(key)
    for item in known:
        wanted[item.server].discard(f"{item.server}__{item.name}")
    missing = sorted(server for server, keys in wanted.items() if keys)
    if missing and servers is None:
        raise SystemExit(f"--servers is required: the folder with the tools of {', '.join(missing)}")
    found = read_servers(servers, missing) if servers else []
    return [item for item in found if f"{item.server}__{item.name}" in wanted[item.server]]


def _make_unlabelled(
    tools: Sequence[Mapping[str, str]],
    others: Sequence[Mapping[str, str]],
    tasks: Iterable[Sequence[Any]],
    source: random.Random,
) -> list[list[str]]:
    """Texts like requests by tool, of `tools`, then of `others`; with sentences of the tasks that need the tool."""
    sentences: dict[int, list[str]] = defaultdict(list)
    for members, text in tasks:
        for sentence in cut_sentences(text):
            sentences[source.choice(members)].append(sentence)
    return [make_requests(tool, source) + sentences[n] for n, tool in enumerate([*tools, *others])]


def _describe(item: Item) -> dict[str, str]:
    name = split_identifier(item.name)
    return {
        "server": item.server,
        "name": f"{split_identifier(item.server)} {name}",
        "plain_name": name,
        "description": item.description,
        "text": build_item_text(item),
    }


def _describe_set(found: AnySet) -> dict[str, Any]:
    if isinstance(found, BookSet):
        raise TypeError(f"{found.name}: training measures with tools and documents, not with books")
    if isinstance(found, ToolSet):
        texts = {key: build_item_text(item) for key, item in found.items.items()}
    else:
        texts = {document.id: build_document_text(document) for document in found.documents}
    queries = [
        {"text": q.text, "grades": dict(q.grades), "groups": [sorted(g) for g in q.groups]} for q in found.queries
    ]
    return {"kind": "tools" if isinstance(found, ToolSet) else "documents", "texts": texts, "queries": queries}


def read_rows(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def read_servers(folder: Path, names: Iterable[str]) -> list[Item]:
    """The tools of servers, from their answers to `tools/list` (NAME.json)."""
    return [
        parse_item({"server": name, **tool, "input_schema": tool.get("inputSchema")})
        for name in names
        for tool in json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["tools"]
    ]


def _read_passages() -> Iterator[str]:
    """Plain prose that is not about tools: paragraphs of Python's own manual."""
    for text in pydoc_data.topics.topics.values():
        for paragraph in re.split(r"\n\s*\n", text):
            plain = " ".join(paragraph.split())
            if MIN_PASSAGE <= len(plain) <= MAX_PASSAGE:
                yield plain
