"""A tenant's documents and the limits of their parts."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolscript.domain.errors import Invalid, InvalidArguments
from toolscript.domain.filters import MAX_EXACT_NUMBER, is_number

# In bytes of UTF-8: ids are part of keys, which also contain the tenant, and engines limit keys to some 2,000 bytes.
MAX_ID_BYTES = 512
MAX_TITLE_LENGTH = 1_000
MAX_TEXT_LENGTH = 10_000_000
SOURCE_FIELD = "source_path"
"""The metadata field with the file that a document was read from. Only ingestion of files sets it."""
MAX_FIELDS = 100
MAX_FIELD_NAME_LENGTH = 128
MAX_VALUE_LENGTH = 10_000
MAX_LIST_LENGTH = 1_000
# Every passage in the index has a copy of the metadata.
MAX_METADATA_BYTES = 64 * 1024
MAX_PASSAGE_METADATA_BYTES = 64 * 1024 * 1024
PASSAGE_CHARACTERS = 1_000

TERMS_VERSION = 2
"""The version of the way in which terms are read from a text. Stored documents with an earlier one are read again."""

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
    terms_version: int = TERMS_VERSION


@dataclass(frozen=True, slots=True)
class Passage:
    """A range of characters of a document's text that fits a model's window."""

    part: int
    start: int
    end: int


def check_document(document: Document) -> None:
    """Raises Invalid for a document that cannot be stored, naming the document, the field and what is allowed."""
    for field_name, problem, allowed in _find_problems(document):
        document_id = document.id[:MAX_ID_BYTES]
        name = f"document {document_id!r}: " if field_name != "id" else "document "
        raise Invalid(
            f"{name}{field_name} {problem}; allowed: {allowed}",
            details={"document_id": _replace_surrogates(document_id), "field": field_name, "allowed": allowed},
        )


# The field, its problem, and what is allowed.
_Problems = Iterator[tuple[str, str, str]]


def _find_problems(document: Document) -> _Problems:
    yield from _check_id(document.id)
    yield from _check_text("title", document.title, 0, MAX_TITLE_LENGTH)
    yield from _check_text("text", document.text, 1, MAX_TEXT_LENGTH)
    if len(document.metadata) > MAX_FIELDS:
        yield "metadata", f"has {len(document.metadata):,} fields", f"at most {MAX_FIELDS}"
    for name, value in document.metadata.items():
        yield from _check_name(name)
        yield from _check_field(f"metadata.{name}", value)
    yield from _check_size(document)


def _check_id(document_id: str) -> _Problems:
    allowed = f"1 to {MAX_ID_BYTES} bytes of UTF-8 without control characters"
    if _has_surrogates(document_id):
        yield "id", "contains half a surrogate pair", allowed
    elif not 1 <= len(document_id.encode()) <= MAX_ID_BYTES:
        yield "id", f"has {len(document_id.encode()):,} bytes", allowed
    elif _has_controls(document_id):
        yield "id", "contains a control character", allowed


def _check_text(field_name: str, text: str, minimum: int, maximum: int) -> _Problems:
    allowed = f"{minimum:,} to {maximum:,} characters of text without null characters"
    if len(text) > maximum:
        yield field_name, f"has {len(text):,} characters", allowed
    elif minimum and not text.strip():
        yield field_name, "is blank", allowed
    elif "\0" in text:
        yield field_name, "contains a null character", allowed
    elif _has_surrogates(text):
        yield field_name, "contains half a surrogate pair", allowed


def _check_size(document: Document) -> _Problems:
    size = len(json.dumps(dict(document.metadata), ensure_ascii=False).encode())
    passages = 1 + len(document.text) // PASSAGE_CHARACTERS
    maximum = MAX_PASSAGE_METADATA_BYTES // passages
    if size > MAX_METADATA_BYTES:
        yield "metadata", f"has {size:,} bytes as JSON", f"at most {MAX_METADATA_BYTES:,} bytes"
    elif size > maximum:
        problem = f"has {size:,} bytes as JSON, and each of the text's {passages:,} or so passages has a copy of it"
        yield "metadata", problem, f"at most {maximum:,} bytes with a text of {len(document.text):,} characters"


def _check_name(name: str) -> _Problems:
    rule = "characters without double quotes, backslashes or control characters"
    allowed = f"names of 1 to {MAX_FIELD_NAME_LENGTH} {rule}"
    if not 1 <= len(name) <= MAX_FIELD_NAME_LENGTH:
        yield "metadata", f"has a field whose name has {len(name):,} characters", allowed
    elif _has_controls(name) or _has_surrogates(name) or not _FORBIDDEN_IN_NAMES.isdisjoint(name):
        yield "metadata", f"has a field named {name!r}", allowed


def _check_field(field_name: str, value: Any) -> _Problems:
    if isinstance(value, list | tuple) and len(value) > MAX_LIST_LENGTH:
        yield field_name, f"is a list of {len(value):,}", f"at most {MAX_LIST_LENGTH:,} values"
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, str):
            yield from _check_text(field_name, each, 0, MAX_VALUE_LENGTH)
        elif not isinstance(each, bool) and not is_number(each):
            yield field_name, f"contains {_describe_kind(each)}", f"{_VALUES}, or leave the field out"
        elif not -MAX_EXACT_NUMBER <= each <= MAX_EXACT_NUMBER:
            yield field_name, "contains a number that is out of range", "numbers of at most 2^53 either side of zero"


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
