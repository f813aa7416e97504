"""The worker process that parses one file from standard input and prints lines of JSON. Its memory, CPU time and
environment are restricted and it cannot write files, because a file may be made to attack its parser."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any

from toolscript.adapters.files.parts import NO_TEXT, BookLimits, ParsedBook, build_book
from toolscript.adapters.files.readers import QUICK_KINDS, read_kind
from toolscript.adapters.files.sniffing import is_packed, recognise_kind
from toolscript.adapters.workers.limits import limit_worker
from toolscript.domain.errors import Invalid
from toolscript.domain.files.kinds import KINDS_BY_ENDING
from toolscript.domain.knowledge import Book, Position

# Parsers take the longest for brackets that close nothing: their number times the length of the file.
_MAX_QUICK_BRACKETS = 100
_ITEMS_IN_A_LINE = 200


def main() -> None:
    """Reads one book. Arguments: the file's ending, the command of tesseract, then the values of BookLimits."""
    ending, tesseract, limits = sys.argv[1], sys.argv[2], BookLimits(*map(int, sys.argv[3:]))
    output = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not mix with the JSON
    limit_worker(memory_bytes=limits.memory_bytes, processor_seconds=int(limits.seconds) + 5)
    answer = build_answer(sys.stdin.buffer, ending, limits, tesseract)
    with os.fdopen(output, "wb") as out:
        out.writelines(write_lines(answer))


def is_quick(data: bytes, ending: str) -> bool:
    """Whether a small file is certain to be read within about a second: a text with few brackets."""
    is_plain = KINDS_BY_ENDING[ending] in QUICK_KINDS and not is_packed(data)
    return is_plain and data.count(b"[") + data.count(b"<") <= _MAX_QUICK_BRACKETS


def build_answer(file: IO[bytes], ending: str, limits: BookLimits, tesseract: str = "") -> dict[str, Any]:
    """Reads a book and returns it as JSON, or why it is refused. Raises nothing."""
    try:
        data = file.read(limits.file_bytes + 1)
        if len(data) > limits.file_bytes:
            return {"refused": f"The file is larger than the limit of {limits.file_bytes / 10**6:,.0f} MB."}
        return _to_json(build_book(parse_file(data, ending, tesseract)), limits)
    except Invalid as error:
        return {"refused": error.message}
    except MemoryError:
        return {"refused": "Reading the file exceeds the memory limit."}
    except Exception as error:  # noqa: BLE001 # any parser error is reported as one line about the file
        return {"refused": f"The file is damaged: the reader stopped with {type(error).__name__}."}


def write_lines(answer: Mapping[str, Any]) -> Iterator[bytes]:
    """Writes an answer as lines of JSON, some positions and blocks in each: while the reader of a line parses it, its
    process does nothing else (six seconds for a whole book)."""
    lists = {name: answer[name] for name in ("positions", "blocks") if name in answer}
    yield _write_line({name: value for name, value in answer.items() if name not in lists})
    for name, items in lists.items():
        for place in range(0, len(items), _ITEMS_IN_A_LINE):
            yield _write_line({name: items[place : place + _ITEMS_IN_A_LINE]})


def _write_line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _to_json(book: Book, limits: BookLimits) -> dict[str, Any]:
    if not any(any(character.isalnum() for character in block.text) for block in book.blocks):
        raise Invalid(NO_TEXT)
    if len(book.blocks) > limits.blocks:
        raise Invalid(f"The file holds {len(book.blocks):,} paragraphs; the limit is {limits.blocks:,}. Split it.")
    positions: dict[Position, int] = {}
    blocks = [
        (block.text, block.kind.value, positions.setdefault(block.position, len(positions))) for block in book.blocks
    ]
    rows = [(each.chapter, each.section, each.page, each.line) for each in positions]
    characters = len(book.title) + sum(map(len, book.authors)) + sum(len(text) for text, _, _ in blocks)
    characters += sum(len(chapter) + len(section) for chapter, section, *_ in rows)
    if characters > limits.characters:
        raise Invalid(
            f"The file holds {characters:,} characters of text; the limit is {limits.characters:,}. Split it."
        )
    about = {"title": book.title, "authors": book.authors, "date": book.date, "warnings": book.warnings}
    return {**about, "positions": rows, "blocks": blocks}


def parse_file(data: bytes, ending: str, tesseract: str = "") -> ParsedBook:
    """Parses a file. Raises Invalid for one that cannot be read."""
    if not data.strip(b"\0 \t\r\n\f\v"):
        raise Invalid("The file is empty." if not data else NO_TEXT)
    return read_kind(recognise_kind(data, KINDS_BY_ENDING[ending]), data, ending, tesseract)
