"""A tenant's documents and the limits of their parts."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import MAX_EXACT_NUMBER, is_number

# In bytes of UTF-8: ids are part of keys, which also contain the tenant, and engines limit keys to some 2,000 bytes.
MAX_ID_BYTES = 512
MAX_TITLE_LENGTH = 1_000
MAX_TEXT_LENGTH = 10_000_000
MAX_FIELDS = 100
MAX_FIELD_NAME_LENGTH = 128
MAX_VALUE_LENGTH = 10_000
MAX_LIST_LENGTH = 1_000
# Every passage in the index has a copy of the metadata.
MAX_METADATA_BYTES = 64 * 1024
MAX_PASSAGE_METADATA_BYTES = 64 * 1024 * 1024
PASSAGE_CHARACTERS = 1_000

# The engines' syntax for field paths cannot express these characters.
_FORBIDDEN_IN_NAMES = frozenset('"\\')
_VALUES = "a string, a number, a boolean, or a list of these"


@dataclass(frozen=True, slots=True)
class Document:
    """A text with a title and metadata: strings (also ISO dates), numbers, booleans, and lists of these."""

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A hash of the document's content."""
        parts = [self.title, self.text, self.metadata]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document in the store, with the terms that count towards its tenant's statistics."""

    document: Document
    terms: frozenset[int]


@dataclass(frozen=True, slots=True)
class Passage:
    """A range of characters of a document's text that fits a model's window."""

    part: int
    start: int
    end: int


def check_document(document: Document) -> None:
    """Raises Invalid for a document that cannot be stored, naming the document, the field and what is allowed."""
    problem = (
        _check_id(document.id)
        or _check_text("title", document.title, 0, MAX_TITLE_LENGTH)
        or _check_text("text", document.text, 1, MAX_TEXT_LENGTH)
        or _check_metadata(document.metadata)
        or _check_size(document)
    )
    if problem:
        field_name, wrong, allowed = problem
        name = f"document {document.id[:MAX_ID_BYTES]!r}: " if field_name != "id" else "document "
        raise Invalid(
            f"{name}{field_name} {wrong}; allowed: {allowed}",
            details={
                "document_id": _replace_surrogates(document.id[:MAX_ID_BYTES]),
                "field": field_name,
                "allowed": allowed,
            },
        )


_Problem = tuple[str, str, str]
"""The field, its problem, and what is allowed."""


def _check_id(document_id: str) -> _Problem | None:
    allowed = f"1 to {MAX_ID_BYTES} bytes of UTF-8 without control characters"
    if _has_surrogates(document_id):
        return "id", "contains half a surrogate pair", allowed
    if not 1 <= len(document_id.encode()) <= MAX_ID_BYTES:
        return "id", f"has {len(document_id.encode()):,} bytes", allowed
    return ("id", "contains a control character", allowed) if _has_controls(document_id) else None


def _check_text(field_name: str, text: str, minimum: int, maximum: int) -> _Problem | None:
    allowed = f"{minimum:,} to {maximum:,} characters of text without null characters"
    if len(text) > maximum:
        return field_name, f"has {len(text):,} characters", allowed
    if minimum and not text.strip():
        return field_name, "is blank", allowed
    if "\0" in text:
        return field_name, "contains a null character", allowed
    return (field_name, "contains half a surrogate pair", allowed) if _has_surrogates(text) else None


def _check_metadata(metadata: Mapping[str, Any]) -> _Problem | None:
    if len(metadata) > MAX_FIELDS:
        return "metadata", f"has {len(metadata):,} fields", f"at most {MAX_FIELDS}"
    problems = (_check_name(name) or _check_field(name, value) for name, value in metadata.items())
    return next(filter(None, problems), None)


def _check_size(document: Document) -> _Problem | None:
    size = len(json.dumps(dict(document.metadata), ensure_ascii=False).encode())
    if size > MAX_METADATA_BYTES:
        return "metadata", f"has {size:,} bytes as JSON", f"at most {MAX_METADATA_BYTES:,} bytes"
    passages = 1 + len(document.text) // PASSAGE_CHARACTERS
    if passages * size > MAX_PASSAGE_METADATA_BYTES:
        maximum = MAX_PASSAGE_METADATA_BYTES // passages
        wrong = f"has {size:,} bytes as JSON, and each of the text's {passages:,} or so passages has a copy of it"
        return "metadata", wrong, f"at most {maximum:,} bytes with a text of {len(document.text):,} characters"
    return None


def _check_name(name: str) -> _Problem | None:
    allowed = (
        f"names of 1 to {MAX_FIELD_NAME_LENGTH} characters without double quotes, backslashes or control characters"
    )
    if not 1 <= len(name) <= MAX_FIELD_NAME_LENGTH:
        return "metadata", f"has a field whose name has {len(name):,} characters", allowed
    if _has_controls(name) or _has_surrogates(name) or not _FORBIDDEN_IN_NAMES.isdisjoint(name):
        return "metadata", f"has a field named {name!r}", allowed
    return None


def _check_field(name: str, value: Any) -> _Problem | None:
    field_name = f"metadata.{name}"
    if not isinstance(value, list | tuple):
        return _check_value(field_name, value)
    if len(value) > MAX_LIST_LENGTH:
        return field_name, f"is a list of {len(value):,}", f"at most {MAX_LIST_LENGTH:,} values"
    return next(filter(None, (_check_value(field_name, each) for each in value)), None)


def _check_value(field_name: str, value: Any) -> _Problem | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _check_text(field_name, value, 0, MAX_VALUE_LENGTH)
    if not is_number(value):
        return field_name, f"contains {_describe_kind(value)}", f"{_VALUES}, or leave the field out"
    if not -MAX_EXACT_NUMBER <= value <= MAX_EXACT_NUMBER:
        return field_name, "contains a number that is out of range", "numbers of at most 2^53 either side of zero"
    return None


def _describe_kind(value: Any) -> str:
    if value is None:
        return "null"
    return "a list inside a list" if isinstance(value, list | tuple) else f"a value of type {type(value).__name__}"


def check_identifiers(**identifiers: str | None) -> None:
    """Raises InvalidArguments, naming the field, for an id or a tenant that no store can look up."""
    for field_name, value in identifiers.items():
        if value is not None and ("\0" in value or _has_surrogates(value)):
            raise InvalidArguments(
                f"{field_name} {_replace_surrogates(value[:MAX_ID_BYTES])!r} contains a null character or half a "
                "surrogate pair: give text without them",
                details={"field": field_name, "allowed": "text without null characters and halves of surrogate pairs"},
            )


def _has_controls(text: str) -> bool:
    return any(unicodedata.category(c) == "Cc" for c in text)


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
