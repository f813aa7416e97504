"""Reads files as documents. Files are read as knowledge reads them, except JSON files that contain whole documents; any
other file is plain text. A problem with one line does not stop the others."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

from toolscript.domain.documents import MAX_TEXT_LENGTH, SOURCE_FIELD, Document, check_document
from toolscript.domain.errors import Invalid
from toolscript.domain.files.kinds import find_ending
from toolscript.domain.files.regular import open_regular, read_regular
from toolscript.domain.knowledge import DATE, Book, complete_date
from toolscript.ports.files import BookReader
from toolscript.services.ingest.finder import describe_error
from toolscript.services.knowledge.book_records import clean_names

# Of a file, and of a line in a file of JSON lines. UTF-8 needs at most four bytes for a character.
MAX_FILE_BYTES = 4 * MAX_TEXT_LENGTH
# Of a file of JSON lines. The ids and digests of its documents are kept while it is read: 250 bytes each.
MAX_LINES_BYTES = 2 * 10**9
MAX_FILE_DOCUMENTS = 10**6
MAX_PROBLEMS = 20
# Values take up to 100 bytes each and hold the interpreter while they are read.
MAX_VALUES = 2 * 10**6
_TOO_LARGE = f"larger than {MAX_LINES_BYTES // 10**6:,} MB: split it"
# Documents of one file that are put together, so that a file of a million does not have to fit in memory.
MAX_BATCH_DOCUMENTS = 256
MAX_BATCH_CHARACTERS = 8 * 2**20
MAX_TITLE_CHARACTERS = 200
# The beginning of a JSONL file, in which a document is looked for.
MAX_PROBED_LINES, MAX_PROBED_BYTES = 100, 2 * MAX_FILE_BYTES
_FIELDS: dict[str, tuple[Any, str]] = {
    "id": (str | int, "is missing or not a string"),
    "title": (str | None, "is not a string"),
    "text": (str, "is missing or not a string"),
    "metadata": (dict | None, "is not an object"),
}


@dataclass(slots=True)
class DocumentFileReader:
    """Reads files as documents, with that metadata added to each."""

    reader: BookReader
    metadata: Mapping[str, Any]
    problems: list[str] = field(default_factory=list)
    """What could not be read in the file, with its place there; the first of them."""
    problem_count: int = 0
    warnings: list[str] = field(default_factory=list)
    """What could not be read otherwise, without a place."""

    async def read(self, file: Path, name: str, source: str) -> AsyncIterator[Document]:
        """The documents in a file; `name` is the id of one that has none itself, `source` where the file comes from.
        Raises Invalid for a file that cannot be read at all."""
        try:
            about = _describe(file, source)
            ending = file.suffix.lower()
            if ending == ".jsonl" and await asyncio.to_thread(_has_document_lines, file):
                batches = self._read_batches(file, about)
                while batch := await asyncio.to_thread(next, batches, None):
                    for document in batch:
                        yield document
            elif ending == ".json" and (values := await asyncio.to_thread(_read_json, file, name)):
                for document in await asyncio.to_thread(lambda: [*self._make_each(values, about)]):
                    yield document
            elif find_ending(file):
                book = await self.reader.read(file)
                self.warnings.extend(book.warnings)
                title, text = " ".join(book.title.split())[:MAX_TITLE_CHARACTERS], _join_text(book)
                yield self._make({"id": name, "title": title, "text": text}, about | _describe_book(book))
            else:
                text = await asyncio.to_thread(_read_text, file)
                yield self._make({"id": name, "title": file.name, "text": text}, about)
        except OSError as error:
            raise Invalid(describe_error(error)) from error

    def _make_each(self, values: Iterable[tuple[Any, str]], about: Mapping[str, Any]) -> Iterator[Document]:
        for value, place in values:
            try:
                document = self._make(value, about)
            except Invalid as error:
                if not place:
                    raise
                self._note(f"{place}: {error.message}")
            else:
                yield document

    def _read_batches(self, file: Path, about: Mapping[str, Any]) -> Iterator[list[Document]]:
        """The documents in a file of JSON lines, some at a time, so that they are read in few steps of a thread."""
        batch: list[Document] = []
        size = read = 0
        for document in self._make_each(self._read_lines(file), about):
            batch.append(document)
            size += len(document.text)
            if len(batch) == MAX_BATCH_DOCUMENTS or size > MAX_BATCH_CHARACTERS:
                yield batch
                batch, size = [], 0
            if (read := read + 1) > MAX_FILE_DOCUMENTS:
                raise Invalid(f"holds more than {MAX_FILE_DOCUMENTS:,} documents: split it")
        if batch:
            yield batch

    def _read_lines(self, file: Path) -> Iterator[tuple[Any, str]]:
        """The documents in a file of JSON lines, and where each is."""
        is_empty = True
        with open_regular(file) as content:
            if os.fstat(content.fileno()).st_size > MAX_LINES_BYTES:
                raise Invalid(_TOO_LARGE)
            for number, line in enumerate(_split_lines(content, MAX_LINES_BYTES), start=1):
                if not line.strip():
                    continue
                is_empty, place = False, f"line {number}"
                try:
                    yield _parse_json(_decode(_require_small(line))), place
                except Invalid as error:
                    self._note(f"{place}: {error.message}")
        if is_empty:
            raise Invalid("empty")

    def _note(self, problem: str) -> None:
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def _make(self, value: Any, about: Mapping[str, Any]) -> Document:
        _check_fields(value)
        metadata = {**about, **(value.get("metadata") or {}), **self.metadata, SOURCE_FIELD: about["path"]}
        document = Document(str(value["id"]), value["text"], value.get("title") or "", metadata)
        check_document(document)
        return document


def _join_text(book: Book) -> str:
    """The paragraphs of a book, with its headings between them."""
    paragraphs: list[str] = []
    before = ("", "")
    for block in book.blocks:
        headings = (block.position.chapter, block.position.section)
        if headings != before:
            changed = headings if headings[0] != before[0] else headings[1:]
            paragraphs += [heading for heading in changed if heading]
            before = headings
        paragraphs.append(block.text)
    return "\n\n".join(paragraphs)


def _describe(file: Path, source: str) -> dict[str, Any]:
    about = {"path": source, "extension": file.suffix.lower()}
    if str(file) != source:  # an uploaded file: nobody knows when it was modified
        return about
    with suppress(ValueError, OverflowError):  # file systems take years that no calendar has
        modified = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        about["modified"] = modified.isoformat(timespec="seconds")
    return about


def _describe_book(book: Book) -> dict[str, Any]:
    """The authors, and the date as a day, since filters compare days."""
    details = {"authors": clean_names(book.authors), DATE: complete_date(book.date)}
    return {name: value for name, value in details.items() if value}


def _read_text(file: Path) -> str:
    return _decode(read_regular(file, MAX_FILE_BYTES))


def _split_lines(content: IO[bytes], max_bytes: int) -> Iterator[bytes]:
    """The lines of a file; of one that is too large, one byte more than allowed. Raises Invalid after `max_bytes`."""
    begins = True
    while line := content.readline(MAX_FILE_BYTES + 1):
        if content.tell() > max_bytes:
            raise Invalid(_TOO_LARGE)  # it grew
        if begins:
            yield line
        begins = len(line) <= MAX_FILE_BYTES or line.endswith(b"\n")


def _require_small(content: bytes) -> bytes:
    if len(content) > MAX_FILE_BYTES:
        raise Invalid(f"larger than {MAX_FILE_BYTES / 10**6:g} MB")
    return content


def _decode(content: bytes) -> str:
    if b"\0" in content:
        raise Invalid("not a text file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid("not UTF-8") from None
    if not text.strip():
        raise Invalid("empty")
    return text


def _has_document_lines(file: Path) -> bool:
    """Whether one of the first lines is a document; otherwise the file is a table of other objects."""
    with open_regular(file) as content, suppress(Invalid):
        return any(_is_document(line) for line in islice(_split_lines(content, MAX_PROBED_BYTES), MAX_PROBED_LINES))
    return False


def _is_document(line: bytes) -> bool:
    try:
        value = _parse_json(_decode(_require_small(line)))
    except Invalid:
        return False
    return isinstance(value, dict) and value.keys() >= {"id", "text"}


def _read_json(file: Path, name: str) -> list[tuple[Any, str]]:
    """The documents in a JSON file (one, a list, or a list in `documents`), and where each is; none if it contains
    something else. Raises Invalid for invalid JSON."""
    content = _parse_json(_read_text(file))
    if isinstance(content, dict) and isinstance(content.get("documents"), list):
        content = content["documents"]
    if isinstance(content, dict):
        return [({"id": name, **content}, "")] if "text" in content else []
    if not isinstance(content, list) or not any(isinstance(entry, dict) and "text" in entry for entry in content):
        return []
    return [(entry, f"document {number}") for number, entry in enumerate(content, start=1)]


def _parse_json(text: str) -> Any:
    try:
        if sum(map(text.count, ",[{")) > MAX_VALUES:
            raise Invalid(f"holds more than {MAX_VALUES:,} values: split it")
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"not valid JSON: {error}") from error


def _check_fields(value: Any) -> None:
    if not isinstance(value, dict):
        raise Invalid(f"not a document: expected an object with {', '.join(_FIELDS)}")
    unknown = sorted(value.keys() - _FIELDS.keys())
    if unknown:
        raise Invalid(f"unknown field {unknown[0]!r}: expected {', '.join(_FIELDS)}")
    for name, (kinds, problem) in _FIELDS.items():
        if not isinstance(value.get(name), kinds) or isinstance(value.get(name), bool):
            raise Invalid(f"{name} {problem}")
