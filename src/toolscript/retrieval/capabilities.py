"""The domains of queries and tools, and the kinds of tools (capabilities) that can do a domain's work although their
text does not mention it: a shell runs git. The tables are data, and a user's file can extend them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from toolscript.configuration.tables import check_keys, describe_problem, read_tables
from toolscript.retrieval.text.words import stem, words

# One mark is enough for a domain; hints count half.
MARK, HINT = 2, 1
KEYS: Mapping[str, Mapping[str, type]] = {
    "domain": {"name": str, "marks": list, "hints": list},
    "capability": {"name": str, "tools": list, "serves": list, "wholly": list},
}
FORMS: Mapping[type, str] = {str: "text", list: "a list", bool: "true or false"}

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
_CONTRAST = re.compile(r"\b(?:instead of|rather than|unlike|without|not|never|blocked)\b", re.IGNORECASE)

Table = Mapping[str, Mapping[str, Any]]
Tables = Mapping[str, Table]


@dataclass(frozen=True, slots=True)
class Subjects:
    """The domains that a tool's name or its server's name states, and its capabilities."""

    domains: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()


NO_SUBJECTS = Subjects()


@dataclass(frozen=True, slots=True)
class Inference:
    """A tool of another domain that can do what the query needs: the query's domain that it serves, the text for the
    reason ("shell → git"), and whether it does such work as well as a tool made for it."""

    domains: frozenset[str]
    text: str
    wholly: bool


class Capabilities:
    """Finds domains and capabilities by the words in the tables."""

    def __init__(self, tables: Tables) -> None:
        """Takes complete and valid tables, in the form of the packaged file."""
        domains, kinds = tables["domain"], tables["capability"]
        self._names = {key: str(content["name"]) for key, content in domains.items()}
        self._kind_names = {key: str(content["name"]) for key, content in kinds.items()}
        self._wholly = {key: frozenset(content.get("wholly", ())) for key, content in kinds.items()}
        self._serves = {key: self._wholly[key] | frozenset(content["serves"]) for key, content in kinds.items()}
        self._of_domains = _Phrases(
            (phrase, key, weight)
            for key, content in domains.items()
            for weight, phrases in ((HINT, content["hints"]), (MARK, content["marks"]))
            for phrase in phrases
        )
        self._of_kinds = _Phrases(
            ((phrase, key, MARK) for key, content in kinds.items() for phrase in content["tools"]), _strip_inflection
        )
        self._known: dict[Subjects, Subjects] = {}
        self.vocabulary = frozenset(
            word
            for content in [*domains.values(), *kinds.values()]
            for phrase in [*content.get("marks", ()), *content.get("hints", ()), *content.get("tools", ())]
            for word in words(phrase)
        )

    def of_query(self, text: str) -> frozenset[str]:
        """The domains of a query."""
        return _select_marked(self._of_domains.find(words(text)))

    def of_tool(self, name: Sequence[str], server: Sequence[str], summary: Sequence[str]) -> Subjects:
        """The domains and capabilities of a tool, from the words of its name, its server's name and the `summary` of
        its description.

        A summary may mention other subjects (a diff "as git shows it"), so it gives no domain, and a single word in it
        gives no capability.
        """
        content = self._of_kinds.find(summary)
        kinds = _select_marked(self._of_kinds.find(name) | {f: weight for f, weight in content.items() if " " in f[0]})
        subjects = Subjects(_select_marked(self._of_domains.find(name) | self._of_domains.find(server)), kinds)
        return self._known.setdefault(subjects, subjects)

    def infer(self, query_domains: frozenset[str], tool: Subjects) -> Inference | None:
        """How a tool can do what the query needs; None if it cannot, or has a domain: a shell in a container serves
        containers, and a tool of the query's domains needs no inference."""
        if tool.domains:
            return None
        kinds = [kind for kind in sorted(tool.kinds) if not query_domains.isdisjoint(self._serves[kind])]
        domains = query_domains & frozenset().union(*(self._serves[kind] for kind in kinds))
        text = f"{', '.join(self._kind_names[kind] for kind in kinds)} → {self.name_domains(domains)}"
        wholly = any(not query_domains.isdisjoint(self._wholly[kind]) for kind in kinds)
        return Inference(domains, text, wholly) if domains else None

    def name_domains(self, domains: frozenset[str]) -> str:
        """The names of domains, as one text."""
        return ", ".join(self._names[key] for key in sorted(domains))


class _Phrases:
    """Finds the phrases of a table in a text, by their first word: most words of a text start no phrase."""

    def __init__(self, content: Iterable[tuple[str, str, int]], get_form: Callable[[str], str] | None = None) -> None:
        self._form = get_form or get_word_form
        self._starting: dict[str, list[tuple[list[str], str, str, int]]] = {}
        for phrase, key, weight in content:
            stemmed = [self._form(w) for w in words(phrase)]
            self._starting.setdefault(stemmed[0], []).append((stemmed, " ".join(stemmed), key, weight))

    def find(self, text: Sequence[str]) -> dict[tuple[str, str], int]:
        """The phrases in a list of words, with the key that each stands for and its weight."""
        stemmed = [self._form(w) for w in text]
        if self._starting.keys().isdisjoint(stemmed):
            return {}
        return {
            (phrase, key): weight
            for at, first in enumerate(stemmed)
            for parts, phrase, key, weight in self._starting.get(first, ())
            if len(parts) == 1 or stemmed[at : at + len(parts)] == parts
        }


@lru_cache(maxsize=65_536)
def get_word_form(word: str) -> str:
    """The stem of a word. Words in -er and -or keep that ending: "contains" must not match "container"."""
    one = word.removesuffix("s")
    return one if one.endswith(("er", "or")) else stem(word)


def _strip_inflection(word: str) -> str:
    """A word without its inflection. A stem is too short for what a tool is: "terminate" and "terminal" have the same
    stem."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) > len(ending) + 2 and not word.endswith("ss"):
            word = word.removesuffix(ending)
            break
    return word.removesuffix("e")


def summarize_purpose(description: str) -> str:
    """What a description says first, up to what the tool is not for: later sentences mention other things."""
    sentence = _SENTENCE_END.split(description.strip(), maxsplit=1)[0]
    return _CONTRAST.split(sentence, maxsplit=1)[0]


def _select_marked(find: Mapping[tuple[str, str], int]) -> frozenset[str]:
    weights: dict[str, int] = {}
    for (_, key), weight in find.items():
        weights[key] = weights.get(key, 0) + weight
    return frozenset(key for key, weight in weights.items() if weight >= MARK)


@cache
def load_packaged_capabilities() -> Capabilities:
    """The tables that come with the package."""
    return Capabilities(_load_packaged())


def load_capabilities(extra: Path | None = None) -> Capabilities:
    """The packaged tables, extended by a TOML or JSON file of the same form.

    Entries of the file are added to entries of the package. An entry with `replace = true` replaces the package's
    entry; at the top of the file it replaces all tables. Raises Invalid, naming the file and the key.
    """
    if extra is None:
        return load_packaged_capabilities()
    user_tables = read_tables(extra, "[domain.NAME] or [capability.NAME]")
    check_keys(extra, user_tables, [*KEYS, "replace"])
    replaces = user_tables.get("replace") is True
    packaged = _load_packaged()
    tables = {kind: _merge({} if replaces else packaged[kind], user_tables.get(kind, {}), kind, extra) for kind in KEYS}
    for key, content in tables["capability"].items():
        for field in ("serves", "wholly"):
            for domain in content.get(field, ()):
                if domain not in tables["domain"]:
                    raise describe_problem(
                        extra, f"capability.{key}.{field}", f"names a domain that does not exist: {domain}"
                    )
    return Capabilities(tables)


def _load_packaged() -> Tables:
    text = resources.files("toolscript").joinpath("data/capabilities.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _merge(ours: Table, theirs: Any, kind: str, file: Path) -> Table:
    if not isinstance(theirs, Mapping):
        raise describe_problem(file, kind, "is not a table")
    tables = dict(ours)
    for key, content in theirs.items():
        if not isinstance(content, Mapping):
            raise describe_problem(file, f"{kind}.{key}", "is not a table")
        _check(content, kind, key, file)
        old = {} if content.get("replace") is True else ours.get(key, {})
        tables[key] = {
            field: content.get(field, old.get(field, key))
            if form is str
            else [*old.get(field, ()), *content.get(field, ())]
            for field, form in KEYS[kind].items()
        }
    return tables


def _check(content: Mapping[str, Any], kind: str, key: str, file: Path) -> None:
    forms = {**KEYS[kind], "replace": bool}
    check_keys(file, content, forms, f"{kind}.{key}.")
    for field, value in content.items():
        where = f"{kind}.{key}.{field}"
        if not isinstance(value, forms[field]):
            raise describe_problem(file, where, f"is not {FORMS[forms[field]]}")
        if isinstance(value, list) and not all(isinstance(name, str) and words(name) for name in value):
            raise describe_problem(file, where, "contains something other than words")
