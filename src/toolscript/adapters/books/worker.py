"""Where files are really read: a process of its own, with little memory, little time, no environment, and no right to
write a byte to a file, because a file may be made to break its reader. It takes the file on standard input and answers
one JSON object."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from toolscript.adapters.books.kinds import read_draft
from toolscript.adapters.books.parts import NO_TEXT, assemble
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import Book, Position


def main() -> None:
    """Reads one book. Arguments: the file's ending, and the most bytes of file, bytes of memory, seconds, characters
    and blocks."""
    ending, file_bytes, memory_bytes, seconds, characters, blocks = sys.argv[1], *map(int, sys.argv[2:7])
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not end up in the answer
    _limit(memory_bytes, seconds)
    answer = _answer(ending, file_bytes, characters, blocks)
    with os.fdopen(answers, "wb") as out:
        out.write(json.dumps(answer).encode("ascii"))


def _limit(memory_bytes: int, seconds: int) -> None:
    """Takes away what reading does not need, where the platform can."""
    try:
        import resource
    except ImportError:
        return
    for what, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, seconds + 5),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(what, (lowest, lowest))
        except (OSError, ValueError):
            continue


def _answer(ending: str, file_bytes: int, characters: int, blocks: int) -> dict[str, Any]:
    try:
        data = sys.stdin.buffer.read(file_bytes + 1)
        if len(data) > file_bytes:
            return {"refused": f"The file is larger than {file_bytes / 10**6:,.0f} MB, which is the most that is read."}
        return _told(assemble(read_draft(data, ending)), characters, blocks)
    except Invalid as error:
        return {"refused": error.message}
    except MemoryError:
        return {"refused": "Reading the file takes more memory than a file may take."}
    except Exception as error:  # noqa: BLE001 # whatever a reader trips over is the file's fault, and told in one line
        return {"refused": f"The file is broken: its reader stopped with {type(error).__name__}."}


def _told(book: Book, most_characters: int, most_blocks: int) -> dict[str, Any]:
    if not any(any(sign.isalnum() for sign in block.text) for block in book.blocks):
        raise Invalid(NO_TEXT)
    if len(book.blocks) > most_blocks:
        raise Invalid(f"The file holds {len(book.blocks):,} paragraphs; at most {most_blocks:,} are read. Split it.")
    positions: dict[Position, int] = {}
    blocks = [
        (block.text, block.kind.value, positions.setdefault(block.position, len(positions))) for block in book.blocks
    ]
    places = [(each.chapter, each.section, each.page) for each in positions]
    characters = len(book.title) + sum(map(len, book.authors)) + sum(len(text) for text, _, _ in blocks)
    characters += sum(len(chapter) + len(section) for chapter, section, _ in places)
    if characters > most_characters:
        raise Invalid(
            f"The file holds {characters:,} characters of text; at most {most_characters:,} are read. Split it."
        )
    return {"title": book.title, "authors": book.authors, "positions": places, "blocks": blocks}
