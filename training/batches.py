"""Draws batches of pairs to train with: requests and tools, tasks and their tools, parts of one description."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from training.tokens import TextTable

QUERY_TOKENS, TOOL_TOKENS, PASSAGE_TOKENS = 96, 112, 128
TASK_SHARE, SELF_SHARE = 0.08, 0.25
# So many pairs are made of each description and each passage.
PAIRS_PER_TOOL, SPANS_PER_PASSAGE = 4, 3
MIN_DESCRIPTION, MIN_SENTENCE = 20, 15
MAX_SIBLINGS = 64


@dataclass(frozen=True)
class Pair:
    """The numbers of a request and of a tool that serves it, and of other tools that serve it too."""

    left: int
    right: int
    also: frozenset[int] = frozenset()


@dataclass
class Batch:
    """Pairs, of which the last `unlabelled` ones only show how the teacher compares them with every tool."""

    pairs: list[Pair] = field(default_factory=list)
    unlabelled: int = 0
    near_misses: list[int] = field(default_factory=list)
    """Further tools, which serve none of the requests."""
    refused: list[tuple[int, int]] = field(default_factory=list)
    """Requests that no tool serves, each with a near miss."""

    @property
    def left(self) -> torch.Tensor:
        return torch.tensor([pair.left for pair in self.pairs])

    @property
    def right(self) -> torch.Tensor:
        """The tools of the pairs, then the near misses."""
        return torch.tensor([pair.right for pair in self.pairs] + self.near_misses)

    @property
    def refused_requests(self) -> torch.Tensor:
        return torch.tensor([request for request, _ in self.refused])

    @property
    def refused_tools(self) -> torch.Tensor:
        return torch.tensor([tool for _, tool in self.refused])

    def build_mask(self) -> torch.Tensor:
        """Which pairs count as unlike or as belonging together: not the same tool a second time, nor a tool that serves
        the request as well."""
        right = self.right
        allowed = right.unsqueeze(0) != right[: len(self.pairs)].unsqueeze(1)
        for number, pair in enumerate(self.pairs):
            if pair.also:
                allowed[number, torch.isin(right, torch.tensor(sorted(pair.also)))] = False
        return allowed.fill_diagonal_(True)


@dataclass(frozen=True)
class _Operation:
    """A request, the tools that serve it, if any, and tools for the same object that do something else."""

    request: int
    relevant: frozenset[int]
    near_misses: list[int]


class Examples:
    """The pairs of the prepared data, and batches of them: the same ones for the same seed. Texts go into the table."""

    def __init__(self, data: Mapping[str, Any], table: TextTable, seed: int, *, validate: bool) -> None:
        """With `validate` nothing of the validation servers is used."""
        self._random = random.Random(seed)
        left_out = frozenset(data["validation_servers"]) if validate else frozenset()
        tools = data["tools"]
        numbers = [table.add(tool["text"], TOOL_TOKENS) for tool in tools]
        self._requests: dict[int, list[Pair]] = defaultdict(list)
        for tool, query in data["queries"]:
            if tools[tool]["server"] not in left_out:
                self._requests[tool].append(Pair(table.add(query, QUERY_TOKENS), numbers[tool]))
        self._tasks: list[list[Pair]] = []
        for members, text in data["tasks"]:
            if not any(tools[tool]["server"] in left_out for tool in members):
                left, every = table.add(text, QUERY_TOKENS), frozenset(numbers[tool] for tool in members)
                self._tasks.append([Pair(left, number, every) for number in sorted(every)])
        self._operations = [
            _Operation(
                table.add(text, QUERY_TOKENS), frozenset(numbers[n] for n in relevant), [numbers[n] for n in near]
            )
            for text, relevant, near in data.get("operations", ())
            if near and not any(tools[tool]["server"] in left_out for tool in (*relevant, *near))
        ]
        self._unlabelled = [
            Pair(table.add(text, QUERY_TOKENS), table.add(tool["text"], TOOL_TOKENS))
            for tool, texts in zip([*tools, *data["catalogue"]], data["unlabelled"], strict=True)
            if tool["server"] not in left_out
            for text in texts
        ]
        described = [tool for tool in [*tools, *data["catalogue"]] if tool["server"] not in left_out]
        self._parts = self._cut_descriptions(described, table)
        self._passages = self._cut_passages(data["passages"], table)
        by_server: dict[str, list[int]] = defaultdict(list)
        for tool in self._requests:
            by_server[tools[tool]["server"]].append(tool)
        self._servers = list(by_server.values())
        self._waiting: list[list[int]] = []

    def draw(self, size: int, unlabelled: int = 0, near_misses: int = 0) -> Batch:
        """A batch of that many labelled pairs, and further ones without a label. Some of the labelled ones have near
        misses."""
        batch = Batch()
        for operation in self._random.choices(self._operations, k=near_misses) if self._operations else ():
            near = self._random.choice(operation.near_misses)
            if operation.relevant:
                tool = self._random.choice(sorted(operation.relevant))
                batch.pairs.append(Pair(operation.request, tool, operation.relevant))
                batch.near_misses.append(near)
            else:
                batch.refused.append((operation.request, near))
        if self._parts:
            batch.pairs += self._random.choices(self._parts, k=int(size * SELF_SHARE))
        if self._tasks:
            batch.pairs += [
                self._random.choice(each) for each in self._random.choices(self._tasks, k=int(size * TASK_SHARE))
            ]
        while len(batch.pairs) < size:
            for tool in self._next_server()[: size - len(batch.pairs)]:
                batch.pairs.append(self._random.choice(self._requests[tool]))
        if self._unlabelled and unlabelled:
            batch.pairs += self._random.choices(self._unlabelled, k=unlabelled)
            batch.unlabelled = unlabelled
        return batch

    def draw_passages(self, size: int) -> torch.Tensor:
        """The numbers of plain texts, and of parts of them that are as short as queries."""
        chosen = self._random.sample(self._passages, min(size // 2, len(self._passages)))
        return torch.tensor([whole for whole, _ in chosen] + [self._random.choice(spans) for _, spans in chosen])

    def _next_server(self) -> list[int]:
        """The tools of a server, shuffled; siblings are the hardest to tell apart, so they come together."""
        if not self._waiting:
            self._waiting = [list(server) for server in self._servers]
            self._random.shuffle(self._waiting)
        server = self._waiting.pop()
        self._random.shuffle(server)
        return server[:MAX_SIBLINGS]

    def _cut_descriptions(self, tools: Sequence[Mapping[str, str]], table: TextTable) -> list[Pair]:
        pairs = []
        for tool in tools:
            if len(tool["description"].strip()) >= MIN_DESCRIPTION:
                found = [cut_parts(tool, self._random) for _ in range(PAIRS_PER_TOOL)]
                pairs += [Pair(table.add(a, QUERY_TOKENS), table.add(b, TOOL_TOKENS)) for a, b in dict.fromkeys(found)]
        return pairs

    def _cut_passages(self, passages: Sequence[str], table: TextTable) -> list[tuple[int, list[int]]]:
        return [
            (
                table.add(text, PASSAGE_TOKENS),
                [table.add(cut_span(text, self._random), PASSAGE_TOKENS) for _ in range(SPANS_PER_PASSAGE)],
            )
            for text in passages
        ]


def cut_parts(tool: Mapping[str, str], source: random.Random) -> tuple[str, str]:
    """Two texts that belong together, without a query: a name and its description, a sentence and the rest, or a span
    and the whole."""
    description = tool["description"].strip()
    sentences = [s for s in re.split(r"(?<=[.!?])\s+|\n+", description) if len(s) > MIN_SENTENCE]
    kind = source.randrange(3)
    if kind == 0:
        return tool["name"], description
    if kind == 1 and len(sentences) > 1:
        at = source.randrange(len(sentences))
        return sentences[at], f"{tool['name']}: " + " ".join(sentences[:at] + sentences[at + 1 :])
    return cut_span(description, source), tool["text"]


def cut_span(text: str, source: random.Random) -> str:
    """Some words in a row."""
    words = text.split()
    length = source.randint(4, max(5, min(16, len(words))))
    start = source.randrange(max(1, len(words) - length + 1))
    return " ".join(words[start : start + length])
