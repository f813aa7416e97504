"""A tenant's documents, and what one may be made of."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import MAX_EXACT_NUMBER, is_number

# In bytes of UTF-8: it is part of keys, and an engine's keys hold some 2,000 bytes, a tenant among them.
MAX_ID_BYTES = 512
MAX_TITLE_LENGTH = 1_000
MAX_TEXT_LENGTH = 10_000_000
MAX_FIELDS = 100
MAX_FIELD_NAME_LENGTH = 128
MAX_VALUE_LENGTH = 10_000
MAX_LIST_LENGTH = 1_000
# Every passage in the index carries the metadata.
MAX_METADATA_BYTES = 64 * 1024
MAX_PASSAGE_METADATA_BYTES = 64 * 1024 * 1024
PASSAGE_CHARACTERS = 1_000

# What the engines' languages for the paths of fields have no way to say.
_UNSAYABLE_IN_NAMES = frozenset('"\\')
_VALUES = "text, a number, true or false, or a list of these"


@dataclass(frozen=True, slots=True)
class Document:
    """A text with a title and typed metadata (strings, numbers, booleans, ISO dates, and lists of these)."""

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Changes exactly when the document does."""
        said = [self.title, self.text, self.metadata]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as the store keeps it, with the terms that count towards its tenant's statistics."""

    document: Document
    terms: frozenset[int]


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document's text: a stretch of characters that fits a model's window."""

    part: int
    start: int
    end: int


def check_document(document: Document) -> None:
    """Raises Invalid for a document that cannot be kept, naming it, the field and what is allowed."""
    problem = _problem(document)
    if problem:
        where, wrong, allowed = problem
        named = f"document {document.id[:MAX_ID_BYTES]!r}" if where != "id" else "a document"
        raise Invalid(
            f"{named} cannot be kept: {where} {wrong}; give {allowed}",
            details={"document_id": _shown(document.id[:MAX_ID_BYTES]), "field": where, "allowed": allowed},
        )


_Problem = tuple[str, str, str]
"""The field, what is wrong with it, what is allowed."""


def _problem(document: Document) -> _Problem | None:
    return (
        _id_problem(document.id)
        or _text_problem("title", document.title, 0, MAX_TITLE_LENGTH)
        or _text_problem("text", document.text, 1, MAX_TEXT_LENGTH)
        or _metadata_problem(document.metadata)
        or _size_problem(document)
    )


def _id_problem(own_id: str) -> _Problem | None:
    allowed = f"1 to {MAX_ID_BYTES} bytes of UTF-8 without control characters"
    if _is_unsayable(own_id):
        return "id", "holds half a surrogate pair", allowed
    if not 1 <= len(own_id.encode()) <= MAX_ID_BYTES:
        return "id", f"has {len(own_id.encode()):,} bytes", allowed
    return ("id", "holds a control character", allowed) if _has_controls(own_id) else None


def _text_problem(where: str, text: str, least: int, most: int) -> _Problem | None:
    allowed = f"{least:,} to {most:,} characters of text without null characters"
    if len(text) > most:
        return where, f"has {len(text):,} characters", allowed
    if least and not text.strip():
        return where, "is blank", allowed
    if "\0" in text:
        return where, "holds a null character", allowed
    return (where, "holds half a surrogate pair", allowed) if _is_unsayable(text) else None


def _metadata_problem(metadata: Mapping[str, Any]) -> _Problem | None:
    if len(metadata) > MAX_FIELDS:
        return "metadata", f"has {len(metadata):,} fields", f"at most {MAX_FIELDS}"
    return next(
        (p for name, value in metadata.items() if (p := _name_problem(name) or _field_problem(name, value))), None
    )


def _size_problem(document: Document) -> _Problem | None:
    size = len(json.dumps(dict(document.metadata), ensure_ascii=False).encode())
    if size > MAX_METADATA_BYTES:
        return "metadata", f"has {size:,} bytes as JSON", f"at most {MAX_METADATA_BYTES:,} bytes"
    passages = 1 + len(document.text) // PASSAGE_CHARACTERS
    if passages * size > MAX_PASSAGE_METADATA_BYTES:
        most = MAX_PASSAGE_METADATA_BYTES // passages
        wrong = f"has {size:,} bytes as JSON, and each of the text's {passages:,} or so passages carries it"
        return "metadata", wrong, f"at most {most:,} bytes with a text of {len(document.text):,} characters"
    return None


def _name_problem(name: str) -> _Problem | None:
    allowed = (
        f"names of 1 to {MAX_FIELD_NAME_LENGTH} characters without double quotes, backslashes or control characters"
    )
    if not 1 <= len(name) <= MAX_FIELD_NAME_LENGTH:
        return "metadata", f"has a field whose name has {len(name):,} characters", allowed
    if _has_controls(name) or _is_unsayable(name) or not _UNSAYABLE_IN_NAMES.isdisjoint(name):
        return "metadata", f"has a field named {name!r}", allowed
    return None


def _field_problem(name: str, value: Any) -> _Problem | None:
    where = f"metadata.{name}"
    if not isinstance(value, list | tuple):
        return _value_problem(where, value)
    if len(value) > MAX_LIST_LENGTH:
        return where, f"is a list of {len(value):,}", f"at most {MAX_LIST_LENGTH:,} values"
    return next((p for each in value if (p := _value_problem(where, each))), None)


def _value_problem(where: str, value: Any) -> _Problem | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _text_problem(where, value, 0, MAX_VALUE_LENGTH)
    if not is_number(value):
        return where, f"holds {_kind(value)}", f"{_VALUES}, or leave the field out"
    if not -MAX_EXACT_NUMBER <= value <= MAX_EXACT_NUMBER:
        return where, "holds a number that is out of range", "numbers of at most 2^53 either side of zero"
    return None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "a list inside a list" if isinstance(value, list | tuple) else f"a value of type {type(value).__name__}"


def check_identifiers(**named: str | None) -> None:
    """Raises InvalidArguments, naming the field, for an id or a tenant that no store could even look for."""
    for field_name, value in named.items():
        if value is not None and ("\0" in value or _is_unsayable(value)):
            raise InvalidArguments(
                f"{field_name} {_shown(value[:MAX_ID_BYTES])!r} holds a null character or half a surrogate pair: give "
                "text without them",
                details={"field": field_name, "allowed": "text without null characters and halves of surrogate pairs"},
            )


def _has_controls(text: str) -> bool:
    return any(unicodedata.category(c) == "Cc" for c in text)


def _is_unsayable(text: str) -> bool:
    """Whether it cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _shown(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
