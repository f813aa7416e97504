"""Files as books. Each is read in a process of its own, which can be ended: what a file does to its reader stays
there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from toolscript.adapters.books.child_environment import bare_environment
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BOOK_ENDINGS, Block, BlockKind, Book, Position

_READ = 2**20
# How long an answer may be as JSON: every sign written as six, numbers and signs around each block and its position,
# or a line that says why there is none.
_WIDEST = 6
_AROUND = 100
_REFUSAL = 10_000
_BLAME = ": it is damaged, or made to break readers."
_START = "from toolscript.adapters.books.worker import main; main()"


@dataclass(frozen=True, slots=True)
class BookLimits:
    """How much one file may take."""

    file_bytes: int = 200 * 10**6
    memory_bytes: int = 2 * 2**30
    seconds: float = 120.0
    characters: int = 50 * 10**6
    blocks: int = 10**6


_USUAL = BookLimits()


class FileBooks:
    """Reads Markdown, HTML, PDF, DOCX, EPUB, reStructuredText and plain text."""

    def __init__(self, limits: BookLimits = _USUAL) -> None:
        self._limits = limits

    async def read(self, path: Path) -> Book:
        """The book that a file holds. Raises Invalid, in one line without the path, for one that cannot or must not be
        read: too large, broken, a trap, of a kind that nobody knows."""
        ending = path.suffix.lower()
        if ending not in BOOK_ENDINGS:
            raise Invalid(f"Files ending in {ending!a} are not read; these are: {', '.join(sorted(BOOK_ENDINGS))}.")
        file = await asyncio.to_thread(_opened, path, self._limits.file_bytes)
        with file:
            told = await self._told(file, ending)
        book = await asyncio.to_thread(_book, told)
        return book if book.title else Book(_named(path), book.authors, book.blocks)

    async def _told(self, file: IO[bytes], ending: str) -> bytes:
        limits = self._limits
        sizes = (limits.file_bytes, limits.memory_bytes, int(limits.seconds), limits.characters, limits.blocks)
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-S", "-P", "-B", "-c", _START, ending, *map(str, sizes)),
            stdin=file,
            stdout=PIPE,
            stderr=DEVNULL,
            env=bare_environment(),
        )
        try:
            async with asyncio.timeout(limits.seconds):
                told = await _listen(child, limits.characters * _WIDEST + limits.blocks * _AROUND + _REFUSAL)
                await child.wait()
        except TimeoutError as error:
            raise Invalid(f"Reading the file took longer than {limits.seconds:g} seconds and was ended.") from error
        finally:
            if child.returncode is None:
                child.kill()
            await child.communicate()
        if child.returncode:
            raise Invalid(f"The file broke its reader, which {_fate(child.returncode)}{_BLAME}")
        return told


def _opened(path: Path, most: int) -> IO[bytes]:
    """The file, when it is one and not too large. Raises Invalid otherwise."""
    try:
        # A pipe without a writer would wait for one.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError as error:
        raise Invalid("There is no such file.") from error
    except OSError as error:
        raise Invalid(f"The file cannot be opened: {error.strerror}.") from error
    file = os.fdopen(descriptor, "rb") if stat.S_ISREG((found := os.fstat(descriptor)).st_mode) else None
    if file is None:
        os.close(descriptor)
        raise Invalid("The path does not lead to a file: name the files themselves.")
    if found.st_size > most:
        file.close()
        size = found.st_size / 10**6
        raise Invalid(f"The file has {size:,.0f} MB; at most {most / 10**6:,.0f} MB are read. Split it.")
    return file


async def _listen(child: Process, most: int) -> bytes:
    """What the child says, up to a bound."""
    told: list[bytes] = []
    size = 0
    while child.stdout and (more := await child.stdout.read(_READ)):
        told.append(more)
        size += len(more)
        if size > most:
            raise Invalid("The file holds more text than is read. Split it.")
    return b"".join(told)


def _fate(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    return f"was ended by {signal.Signals(-code).name}"


def _book(told: bytes) -> Book:
    try:
        answer: dict[str, Any] = json.loads(told)
    except ValueError as error:
        raise Invalid(f"The file broke its reader, which gave no answer{_BLAME}") from error
    if "refused" in answer:
        raise Invalid(str(answer["refused"]))
    places = [Position(*each) for each in answer["positions"]]
    blocks = tuple(Block(text, BlockKind(kind), places[place]) for text, kind, place in answer["blocks"])
    return Book(answer["title"], tuple(answer["authors"]), blocks)


def _named(path: Path) -> str:
    """A title for a file that has none: its name, as words."""
    return " ".join(path.stem.replace("_", " ").replace("-", " ").split())
