"""Reads files as documents. Books and pages are read as knowledge reads them; JSON files contain whole documents, and
any other file is plain text. A problem with one file or line does not stop the others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscript.domain.documents import MAX_TEXT_LENGTH, Document, check_document
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BOOK_ENDINGS
from toolscript.surfaces.cli.files.finder import FileFinder, describe_error

if TYPE_CHECKING:
    from toolscript.domain.knowledge import Book

ENDINGS = (*BOOK_ENDINGS, ".json", ".jsonl")
# UTF-8 needs at most four bytes for a character.
MAX_FILE_BYTES = 4 * MAX_TEXT_LENGTH
MAX_TITLE_CHARACTERS = 200
SOURCE = "source_path"
"""The metadata field with the file that a document was read from. Only this command sets it."""
_FIELDS: dict[str, tuple[Any, str]] = {
    "id": (str | int, "is missing or not a string"),
    "title": (str | None, "is not a string"),
    "text": (str, "is missing or not a string"),
    "metadata": (dict | None, "is not an object"),
}


@dataclass(frozen=True, slots=True)
class DocumentFileReader:
    """Reads files as documents, with that metadata added to each. What cannot be read is skipped."""

    read_book: Callable[[Path], Awaitable[Book]]
    metadata: Mapping[str, Any]
    finder: FileFinder
    incomplete: set[str] = field(default_factory=set)
    """The files in which something could not be read."""

    async def read(self, file: Path, name: str) -> AsyncIterator[Document]:
        """The documents in a file; `name` is the id of one that has none itself."""
        values: Iterable[tuple[Any, str]]
        try:
            about = _describe(file)
            if file.suffix.lower() in BOOK_ENDINGS:
                book = await self.read_book(file)
                title, text = " ".join(book.title.split())[:MAX_TITLE_CHARACTERS], _join_text(book)
                values = [({"id": name, "title": title, "text": text}, str(file))]
            elif file.suffix.lower() == ".jsonl":
                values = self._read_lines(file)
            elif file.suffix.lower() == ".json":
                values = _read_json(file, name)
            else:
                values = [({"id": name, "title": file.name, "text": _read_text(file)}, str(file))]
            for value, place in values:
                try:
                    yield self._make(value, about)
                except Invalid as error:
                    self._skip(file, place, error.message)
        except OSError as error:
            self._skip(file, str(file), describe_error(error))
        except Invalid as error:
            self._skip(file, str(file), error.message)

    def _skip(self, file: Path, place: str, problem: str) -> None:
        self.finder.skip(place, problem)
        self.incomplete.add(str(file))

    def _read_lines(self, file: Path) -> Iterator[tuple[Any, str]]:
        """The documents in a file of JSON lines, and where each is."""
        is_empty = True
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                is_empty, place = False, f"{file}, line {number}"
                try:
                    yield _parse_json(_decode(line)), place
                except Invalid as error:
                    self._skip(file, place, error.message)
        if is_empty:
            raise Invalid("empty")

    def _make(self, value: Any, about: Mapping[str, Any]) -> Document:
        _check_fields(value)
        metadata = {**about, **(value.get("metadata") or {}), **self.metadata, SOURCE: about["path"]}
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


def _describe(file: Path) -> dict[str, Any]:
    modified = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return {"path": str(file), "extension": file.suffix.lower(), "modified": modified.isoformat(timespec="seconds")}


def _read_text(file: Path) -> str:
    if file.stat().st_size > MAX_FILE_BYTES:
        raise Invalid(f"larger than {MAX_FILE_BYTES // 10**6} MB")
    return _decode(file.read_bytes())


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


def _read_json(file: Path, name: str) -> Iterator[tuple[Any, str]]:
    """The documents in a JSON file (one, a list, or a list in `documents`), and where each is."""
    content = _parse_json(_read_text(file))
    if isinstance(content, dict) and isinstance(content.get("documents"), list):
        content = content["documents"]
    if isinstance(content, dict):
        yield {"id": name, **content}, str(file)
        return
    if not isinstance(content, list):
        raise Invalid(f"contains no document: expected an object with {', '.join(_FIELDS)}, or a list of them")
    for number, each in enumerate(content, start=1):
        yield each, f"{file}, document {number}"


def _parse_json(text: str) -> Any:
    try:
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
