"""Finds text in definitions that addresses the model instead of describing a tool, and characters that hide text.

The rules are data (`data/suspicious_texts.toml`). Every pattern is linear in the length of the text. What the rules
catch, and what they catch by mistake, is published in docs/guide/trust.md."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.domain.quarantine import Finding, make_visible
from toolscript.services.trust import disguises

# A definition with more text than this is not read by people either.
MAX_CHARACTERS = 1_000_000
# No rule matches less: most texts of schemas are words such as "string".
MIN_ORDER = 10
PASSAGE_MARGIN, MAX_PASSAGE = 30, 200


@dataclass(frozen=True, slots=True)
class SuspicionRule:
    """Patterns with one reason, for the words of a text and for the text with its punctuation."""

    name: str
    reason: str
    words: tuple[re.Pattern[str], ...]
    raw: tuple[re.Pattern[str], ...]


class Scanner:
    """Applies rules to every text of a definition."""

    def __init__(self, rules: tuple[SuspicionRule, ...]) -> None:
        self._rules = rules

    def scan(self, item: Item) -> list[Finding]:
        """The first finding in each suspicious field, those in the description first."""
        found: list[Finding] = []
        left = MAX_CHARACTERS
        for where, text in _list_texts(item):
            left -= len(text)
            if left < 0:
                return [*found, Finding(where, "", f"has more than {MAX_CHARACTERS} characters, too many to check")]
            if finding := self._scan_text(where, text):
                found.append(finding)
        return found

    def _scan_text(self, where: str, text: str) -> Finding | None:
        if len(text) < MIN_ORDER and text.isascii() and text.isprintable():
            return None
        is_name = where == "name" or where.endswith(disguises.KEY)
        if problem := disguises.find_hidden(text, is_name=is_name):
            return Finding(where, _cut(make_visible(text), problem.start), problem.reason)
        for decoded in disguises.decode(text):
            if finding := self._match(where, decoded.text):
                return Finding(where, finding.passage, f"{finding.reason}{decoded.disguise}")
            if decoded.reason:
                return Finding(where, _cut(decoded.text, 0), decoded.reason)
        return None

    def _match(self, where: str, text: str) -> Finding | None:
        raw = disguises.simplify(text)
        words = disguises.split_words(raw)
        is_ascii = raw.isascii()
        for rule in self._rules:
            for patterns, subject in ((rule.words, words), (rule.raw, raw)):
                for pattern in patterns:
                    if is_ascii and not pattern.pattern.isascii():
                        continue
                    if match := pattern.search(subject):
                        return Finding(where, _cut(subject, match.start(), match.end()), rule.reason)
        return None


def _list_texts(item: Item) -> Iterator[tuple[str, str]]:
    """Every text that a client might show to a model, with its place."""
    yield "description", item.description
    yield "name", item.name
    yield "title", item.title or ""
    for name in ("input_schema", "output_schema", "annotations", "definition"):
        yield from _walk(name, getattr(item, name))


def _walk(where: str, value: Any) -> Iterator[tuple[str, str]]:
    """The texts and keys of a JSON value. Iterative: schemas can be nested deeper than Python's stack."""
    waiting = [(where, value)]
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, str):
            yield where, value
        elif isinstance(value, Mapping):
            for key, each in reversed([*value.items()]):
                waiting.append((f"{where}.{make_visible(str(key), keep='')[:60]}", each))
            yield from ((f"{where}{disguises.KEY}", str(key)) for key in value)
        elif isinstance(value, list | tuple):
            waiting.extend((where, each) for each in reversed(value))


def _cut(text: str, start: int, end: int | None = None) -> str:
    """The passage with a little around it, in one line."""
    begin = max(0, start - PASSAGE_MARGIN)
    stop = min(len(text), (start if end is None else end) + PASSAGE_MARGIN, begin + MAX_PASSAGE)
    flat = make_visible(" ".join(text[begin:stop].split()))
    return f"{'…' if begin else ''}{flat}{'…' if stop < len(text) else ''}"


@cache
def load_scanner() -> Scanner:
    """The scanner with the rules of the package."""
    text = resources.files("toolscript").joinpath("data/suspicious_texts.toml").read_text(encoding="utf-8")
    return Scanner(tuple(_compile(rule) for rule in tomllib.loads(text)["rule"]))


def _compile(rule: Mapping[str, Any]) -> SuspicionRule:
    words, raw = (tuple(map(re.compile, rule.get(kind, ()))) for kind in ("words", "raw"))
    return SuspicionRule(rule["name"], rule["reason"], words, raw)
