"""The worker process that parses one file from standard input and prints one JSON object. Its memory, CPU time and
environment are restricted and it cannot write files, because a file may be made to attack its parser."""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any

from toolscript.adapters.books.kinds import parse_file
from toolscript.adapters.books.parts import NO_TEXT, build_book
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Book, Position


def main() -> None:
    """Reads one book. Arguments: the file's ending, then the limits: bytes of file, bytes of memory, seconds,
    characters, blocks."""
    ending, file_bytes, memory_bytes, seconds, characters, blocks = sys.argv[1], *map(int, sys.argv[2:7])
    output = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not mix with the JSON
    _restrict_process(memory_bytes, seconds)
    answer = build_answer(sys.stdin.buffer, ending, file_bytes, characters, blocks)
    with os.fdopen(output, "wb") as out:
        out.write(json.dumps(answer).encode("ascii"))


def _restrict_process(memory_bytes: int, seconds: int) -> None:
    """Sets resource limits where the platform has them."""
    try:
        import resource
    except ImportError:
        return
    for resource_id, maximum in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, seconds + 5),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(resource_id)
        limit = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        try:
            resource.setrlimit(resource_id, (limit, limit))
        except (OSError, ValueError):
            continue


def build_answer(file: IO[bytes], ending: str, file_bytes: int, characters: int, blocks: int) -> dict[str, Any]:
    """Reads a book and returns it as JSON, or why it is refused. Raises nothing."""
    try:
        data = file.read(file_bytes + 1)
        if len(data) > file_bytes:
            return {"refused": f"The file is larger than the limit of {file_bytes / 10**6:,.0f} MB."}
        return _to_json(build_book(parse_file(data, ending)), characters, blocks)
    except Invalid as error:
        return {"refused": error.message}
    except MemoryError:
        return {"refused": "Reading the file exceeds the memory limit."}
    except Exception as error:  # noqa: BLE001 # any parser error is reported as one line about the file
        return {"refused": f"The file is damaged: the reader stopped with {type(error).__name__}."}


def _to_json(book: Book, max_characters: int, max_blocks: int) -> dict[str, Any]:
    if not any(any(character.isalnum() for character in block.text) for block in book.blocks):
        raise Invalid(NO_TEXT)
    if len(book.blocks) > max_blocks:
        raise Invalid(f"The file holds {len(book.blocks):,} paragraphs; the limit is {max_blocks:,}. Split it.")
    positions: dict[Position, int] = {}
    blocks = [
        (block.text, block.kind.value, positions.setdefault(block.position, len(positions))) for block in book.blocks
    ]
    rows = [(each.chapter, each.section, each.page) for each in positions]
    characters = len(book.title) + sum(map(len, book.authors)) + sum(len(text) for text, _, _ in blocks)
    characters += sum(len(chapter) + len(section) for chapter, section, _ in rows)
    if characters > max_characters:
        raise Invalid(f"The file holds {characters:,} characters of text; the limit is {max_characters:,}. Split it.")
    return {"title": book.title, "authors": book.authors, "positions": rows, "blocks": blocks}
