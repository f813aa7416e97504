"""Texts that no cache knows: recombined from the demo catalogue, the same in every run."""

from __future__ import annotations

import random
from dataclasses import replace

from toolscript.domain.catalog import Item
from toolscript.services.catalogue.demo import load_demo_items, load_demo_pairs


def make_queries(count: int, seed: int) -> list[str]:
    """Different queries of natural length: the first half of one demo question, the second half of another."""
    chance = random.Random(seed)
    demo_queries = [query.split() for query, _ in load_demo_pairs()]
    found: dict[str, None] = {}
    while len(found) < count:
        first, second = chance.sample(demo_queries, 2)
        number = chance.randrange(1000)
        found[" ".join([*first[: len(first) // 2], str(number), *second[len(second) // 2 :]])] = None
    return list(found)


def make_documents(count: int, words: int, seed: int) -> list[str]:
    """Different texts with that many words, drawn from the demo tools' descriptions."""
    chance = random.Random(seed)
    known = [word for item in load_demo_items() for word in item.description.split()]
    return [" ".join(chance.choices(known, k=words)) for _ in range(count)]


def make_catalogue(count: int) -> list[Item]:
    """Tools made from the demo tools: each server repeated, each description combined from two tools."""
    chance = random.Random(count)
    demo = load_demo_items()
    made: list[Item] = []
    for number in range(count):
        base, other = demo[number % len(demo)], chance.choice(demo)
        own_words = base.description.split(". ")[0].removesuffix(".")
        other_words = other.description.split(". ")[-1]
        server = f"{base.server}-{number // len(demo)}"
        made.append(replace(base, server=server, description=f"{own_words}, as {server} does. {other_words}"))
    return made
