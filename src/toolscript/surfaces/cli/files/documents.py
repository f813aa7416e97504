"""Reads files as documents. Books and pages are read as knowledge reads them; JSON files contain whole documents, and
any other file is plain text. A problem with one file or line does not stop the others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscript.domain.documents import MAX_TEXT_LENGTH, Document, check_document
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BOOK_ENDINGS
from toolscript.surfaces.cli.files.finder import FoundFile, SkippedFile

if TYPE_CHECKING:
    from toolscript.domain.knowledge import Book

JSON_ENDINGS = (".json", ".jsonl")
ENDINGS = (*BOOK_ENDINGS, *JSON_ENDINGS)
# UTF-8 needs at most four bytes for a character.
MAX_FILE_BYTES = 4 * MAX_TEXT_LENGTH
MAX_TITLE_CHARACTERS = 200
SOURCE = "source_path"
"""The metadata field with the file that a document was read from. Only this command sets it."""
_FIELDS = ("id", "title", "text", "metadata")


@dataclass(frozen=True, slots=True)
class DocumentFileReader:
    """Reads files as documents, with that metadata added to each."""

    read_book: Callable[[Path], Awaitable[Book]]
    metadata: Mapping[str, Any]

    async def read(self, found: FoundFile) -> AsyncIterator[Document | SkippedFile]:
        """The documents in a file, and what is wrong with it."""
        file = found.file
        ending = file.suffix.lower()
        try:
            about = _describe(file)
            if ending in BOOK_ENDINGS:
                book = await self.read_book(file)
                title, text = " ".join(book.title.split())[:MAX_TITLE_CHARACTERS], _join_text(book)
                yield self._make({"id": found.name, "title": title, "text": text}, str(file), about)
            elif ending in JSON_ENDINGS:
                for value, place in _read_lines(file) if ending == ".jsonl" else _read_json(found):
                    yield value if isinstance(value, SkippedFile) else self._make(value, place, about)
            else:
                yield self._make({"id": found.name, "title": file.name, "text": _read_text(file)}, str(file), about)
        except OSError as error:
            yield SkippedFile(str(file), error.strerror or str(error))
        except Invalid as error:
            yield SkippedFile(str(file), error.message)

    def _make(self, value: Any, place: str, about: Mapping[str, Any]) -> Document | SkippedFile:
        problem = _find_problem(value)
        if problem:
            return SkippedFile(place, problem)
        metadata = {**about, **(value.get("metadata") or {}), **self.metadata, SOURCE: about["path"]}
        document = Document(str(value["id"]), value["text"], value.get("title") or "", metadata)
        try:
            check_document(document)
        except Invalid as error:
            return SkippedFile(place, error.message)
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


def _read_json(found: FoundFile) -> Iterator[tuple[Any, str]]:
    """The documents in a JSON file (one, a list, or a list in `documents`), and where each is."""
    content = _parse_json(_read_text(found.file))
    if isinstance(content, dict) and isinstance(content.get("documents"), list):
        content = content["documents"]
    if isinstance(content, dict):
        yield {"id": found.name, **content}, str(found.file)
        return
    if not isinstance(content, list):
        raise Invalid(f"contains no document: expected an object with {', '.join(_FIELDS)}, or a list of them")
    for number, each in enumerate(content, start=1):
        yield each, f"{found.file}, document {number}"


def _read_lines(file: Path) -> Iterator[tuple[Any, str]]:
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
                yield SkippedFile(place, error.message), place
    if is_empty:
        raise Invalid("empty")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"not valid JSON: {error}") from error


def _find_problem(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"not a document: expected an object with {', '.join(_FIELDS)}"
    unknown = sorted(value.keys() - set(_FIELDS))
    if unknown:
        return f"unknown field {unknown[0]!r}: expected {', '.join(_FIELDS)}"
    if not isinstance(value.get("id"), str | int) or isinstance(value.get("id"), bool):
        return "id is missing or not a string"
    if not isinstance(value.get("text"), str):
        return "text is missing or not a string"
    if not isinstance(value.get("title"), str | None):
        return "title is not a string"
    return None if isinstance(value.get("metadata"), dict | None) else "metadata is not an object"
