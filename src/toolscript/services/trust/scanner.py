"""Finds text in definitions that addresses the model instead of describing a tool, and characters that hide text.

The rules are data (`data/suspicious_texts.toml`, `data/suspicious_words.toml`). Every pattern is linear in the length
of the text. What the rules catch, and what they catch by mistake, is published in docs/guide/trust.md."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.domain.quarantine import Finding, make_visible
from toolscript.services.trust import disguises
from toolscript.services.trust.words import Lexicon, split_name

# A definition with more text than this is not read by people either.
MAX_CHARACTERS = 1_000_000
# No rule matches less: most texts of schemas are words such as "string".
MIN_ORDER = 10
# Of words of orders in a text that is encoded: examples of encoded text have some by chance.
MIN_CLASSES_OF_DISGUISED_ORDER = 5
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

    def __init__(self, rules: tuple[SuspicionRule, ...], lexicon: Lexicon) -> None:
        self._rules = rules
        self._ascii_rules = tuple(
            replace(rule, words=_keep_ascii(rule.words), raw=_keep_ascii(rule.raw)) for rule in rules
        )
        self._lexicon = lexicon

    def scan(self, item: Item) -> list[Finding]:
        """The first finding in each suspicious field, the description's first."""
        findings: list[Finding] = []
        left = MAX_CHARACTERS
        for where, text, is_option in list_texts(item):
            left -= len(text)
            if left < 0:
                return [*findings, Finding(where, "", f"has more than {MAX_CHARACTERS} characters, too many to check")]
            if finding := self._scan_text(where, text, is_option=is_option):
                findings.append(finding)
        return findings

    def _scan_text(self, where: str, text: str, *, is_option: bool) -> Finding | None:
        if len(text) < MIN_ORDER and text.isascii() and text.isprintable():
            return None
        is_name = where == "name" or where.endswith(disguises.KEY)
        if problem := disguises.find_hidden(text, is_name=is_name):
            return Finding(where, _cut(make_visible(text), problem.start), problem.reason)
        for decoded in disguises.decode(split_name(text) if is_name else text):
            raw = disguises.simplify(decoded.text)
            if finding := self._match(where, raw, is_option=is_option):
                return Finding(where, finding.passage, f"{finding.reason}{decoded.disguise}")
            if decoded.reason and self._lexicon.count_classes(raw) >= MIN_CLASSES_OF_DISGUISED_ORDER:
                return Finding(where, _cut(decoded.text, 0), decoded.reason)
        return None

    def _match(self, where: str, raw: str, *, is_option: bool) -> Finding | None:
        if order := self._lexicon.find_order(raw, is_option=is_option):
            return Finding(where, _cut(raw, order.start, order.end), order.reason)
        words = disguises.split_words(raw)
        for rule in self._ascii_rules if raw.isascii() else self._rules:
            for patterns, subject in ((rule.words, words), (rule.raw, raw)):
                for pattern in patterns:
                    if match := pattern.search(subject):
                        return Finding(where, _cut(subject, match.start(), match.end()), rule.reason)
        return None


def list_texts(item: Item) -> Iterator[tuple[str, str, bool]]:
    """Every text that a client might show to a model, with its place, and whether it describes a switch."""
    yield "description", item.description, False
    yield "name", item.name, False
    yield "title", item.title or "", False
    for name in ("input_schema", "output_schema", "annotations", "definition"):
        yield from _walk(name, getattr(item, name))


def _walk(where: str, value: Any) -> Iterator[tuple[str, str, bool]]:
    """The texts and keys of a JSON value. Iterative: schemas can be nested deeper than Python's stack."""
    waiting = [(where, value, False)]
    while waiting:
        where, value, is_option = waiting.pop()
        if isinstance(value, str):
            yield where, value, is_option
        elif isinstance(value, Mapping):
            is_switch = value.get("type") == "boolean"
            for key, member in reversed([*value.items()]):
                waiting.append((f"{where}.{make_visible(str(key), keep='')[:60]}", member, is_switch))
            yield from ((f"{where}{disguises.KEY}", str(key), False) for key in value)
        elif isinstance(value, list | tuple):
            waiting.extend((where, member, is_option) for member in reversed(value))


def _cut(text: str, start: int, end: int | None = None) -> str:
    """The passage with a little around it, in one line."""
    begin = max(0, start - PASSAGE_MARGIN)
    stop = min(len(text), (start if end is None else end) + PASSAGE_MARGIN, begin + MAX_PASSAGE)
    flat = make_visible(" ".join(text[begin:stop].split()))
    return f"{'…' if begin else ''}{flat}{'…' if stop < len(text) else ''}"


@cache
def load_scanner() -> Scanner:
    """The scanner with the rules of the package."""
    rules = tuple(_compile(rule) for rule in _read_data("suspicious_texts.toml")["rule"])
    return Scanner(rules, Lexicon(_read_data("suspicious_words.toml")))


def _read_data(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("toolscript").joinpath("data", name).read_text(encoding="utf-8"))


def _keep_ascii(patterns: Iterable[re.Pattern[str]]) -> tuple[re.Pattern[str], ...]:
    return tuple(pattern for pattern in patterns if pattern.pattern.isascii())


def _compile(rule: Mapping[str, Any]) -> SuspicionRule:
    words, raw = (tuple(map(re.compile, rule.get(kind, ()))) for kind in ("words", "raw"))
    return SuspicionRule(rule["name"], rule["reason"], words, raw)
