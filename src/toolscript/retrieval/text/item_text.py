"""What is embedded and what is matched by word, for each kind of thing. Chosen by measurement: docs/benchmarks.md."""

from __future__ import annotations

from collections import Counter

from toolscript.domain.catalog import Item, Skill
from toolscript.domain.documents import Document, Passage
from toolscript.retrieval.text.words import split_identifier, term_frequencies, words

ITEM_AVERAGE_LENGTH = 40.0
DOCUMENT_AVERAGE_LENGTH = 100.0
NAME_WEIGHT = 2


def build_item_text(item: Item) -> str:
    """Server and name as words, the description, the parameters' names. A server already named in the tool's
    name is not repeated."""
    name = split_identifier(item.name)
    server = split_identifier(item.server)
    lead = name if set(words(server)) <= set(words(name)) else f"{server} {name}"
    text = f"{lead}: {item.description}"
    if item.parameters:
        text += " Parameters: " + ", ".join(split_identifier(p) for p in item.parameters)
    return text


def item_frequencies(item: Item) -> Counter[int]:
    """Terms of the same fields; those of the name count twice."""
    found = term_frequencies(item.name)
    for number in found:
        found[number] *= NAME_WEIGHT
    found += term_frequencies(item.server)
    found += term_frequencies(item.description)
    for parameter in item.parameters:
        found += term_frequencies(parameter)
    return found


def build_skill_text(skill: Skill) -> str:
    """Name, description, and what its tools are called."""
    text = f"{skill.name}: {skill.description}"
    if skill.examples:
        text += " For example: " + ", ".join(split_identifier(e) for e in skill.examples)
    return text


def build_document_text(document: Document) -> str:
    """Title, then text; a text that opens with its title does not say it twice."""
    return prepend_title(document.title, document.text)


def build_passage_text(document: Document, passage: Passage) -> str:
    """Title, then passage: what a passage says is often only clear from what the document is about."""
    return prepend_title(document.title, document.text[passage.start : passage.end].strip())


def prepend_title(title: str, text: str) -> str:
    """A text under its title, which is not said twice."""
    if not title or text[: 2 * len(title)].casefold().startswith(title.casefold()):
        return text
    return f"{title}. {text}"


def document_frequencies(document: Document) -> Counter[int]:
    """Terms of title and text."""
    return term_frequencies(build_document_text(document))
