"""Builds the texts to embed and the terms to match, for items, skills and documents. Chosen by measurement:
docs/benchmarks.md."""

from __future__ import annotations

from collections import Counter

from toolscript.domain.agent_skills import get_body
from toolscript.domain.catalog import Item, Skill
from toolscript.domain.documents import Document, Passage
from toolscript.domain.registry.entry import RegistryEntry
from toolscript.retrieval.text.chunking import passages
from toolscript.retrieval.text.forms import count_document_forms
from toolscript.retrieval.text.words import split_identifier, term_frequencies, words

ITEM_AVERAGE_LENGTH = 40.0
DOCUMENT_AVERAGE_LENGTH = 100.0
NAME_WEIGHT = 2
# Of an agent skill: what is behind them is not searched.
MAX_PASSAGES = 100
# Namespaces of accounts at services that host source code.
_ACCOUNTS = ("io.github.", "io.gitlab.")


def build_item_text(item: Item) -> str:
    """Server and name as words, the description, and the names of the parameters. A server that the tool's name
    contains is not repeated."""
    name = split_identifier(item.name)
    server = split_identifier(item.server)
    lead = name if set(words(server)) <= set(words(name)) else f"{server} {name}"
    text = f"{lead}: {item.description}"
    if item.parameters:
        text += " Parameters: " + ", ".join(split_identifier(p) for p in item.parameters)
    return text


def item_frequencies(item: Item) -> Counter[int]:
    """The terms of the same fields; terms of the name count twice."""
    found = term_frequencies(item.name)
    for number in found:
        found[number] *= NAME_WEIGHT
    found += term_frequencies(item.server)
    found += term_frequencies(item.description)
    for parameter in item.parameters:
        found += term_frequencies(parameter)
    return found


def build_passage_texts(item: Item) -> list[str]:
    """The passages of the text of an agent skill, each with its name; none for other items."""
    body = get_body(item).strip()
    cut = passages(body)[:MAX_PASSAGES] if body else ()
    return [f"{split_identifier(item.name)}: {body[each.start : each.end].strip()}" for each in cut]


def count_item_terms(item: Item) -> frozenset[int]:
    """The terms that a search finds an item by, also those of the text of an agent skill."""
    return frozenset(item_frequencies(item)).union(*map(term_frequencies, build_passage_texts(item)))


def build_registry_text(entry: RegistryEntry) -> str:
    """Name, title and description as words. Of the namespace only the publisher's domain: names of accounts say
    nothing about a server."""
    server = entry.name.partition("/")[2].replace(".", " ")
    domain = "" if entry.publisher.startswith(_ACCOUNTS) else f"{entry.publisher.rpartition('.')[2]} "
    name = split_identifier(domain + server)
    title = "" if set(words(entry.title)) <= set(words(name)) else f"{entry.title}. "
    return f"{name}: {title}{entry.description}"


def registry_frequencies(entry: RegistryEntry) -> Counter[int]:
    """The terms of the same fields."""
    return term_frequencies(build_registry_text(entry))


def build_skill_text(skill: Skill) -> str:
    """Name, description, and the names of example tools."""
    text = f"{skill.name}: {skill.description}"
    if skill.examples:
        text += " For example: " + ", ".join(split_identifier(e) for e in skill.examples)
    return text


def build_document_text(document: Document) -> str:
    """Title and text."""
    return prepend_title(document.title, document.text)


def build_passage_text(document: Document, passage: Passage) -> str:
    """Title and passage: a passage is often only clear with its document's title."""
    return prepend_title(document.title, document.text[passage.start : passage.end].strip())


def prepend_title(title: str, text: str) -> str:
    """The title and the text; a title that the text begins with is not repeated."""
    if not title or text[: 2 * len(title)].casefold().startswith(title.casefold()):
        return text
    return f"{title}. {text}"


def document_frequencies(document: Document) -> dict[int, float]:
    """The terms of title and text, in the forms of the document's language."""
    return count_document_forms(build_document_text(document))
