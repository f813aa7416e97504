"""Reads files as books. Each file is read in a worker process that can be killed, so that a hostile file can only harm
its own worker."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from asyncio.subprocess import Process
from dataclasses import astuple, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import toolscript
from toolscript.adapters.files.parts import BookLimits
from toolscript.adapters.workers.process import describe_exit, start_worker, stop_process
from toolscript.domain.errors import Invalid
from toolscript.domain.files.kinds import FILE_ENDINGS, KINDS_BY_ENDING, FileKind, find_ending
from toolscript.domain.files.regular import open_regular
from toolscript.domain.knowledge import Block, BlockKind, Book, Position

_CHUNK_BYTES = 2**20
# Bounds of the output: JSON escapes a character with at most six, and a block has punctuation and numbers around it.
_MAX_JSON_CHARACTERS_PER_CHARACTER = 6
_JSON_CHARACTERS_PER_BLOCK = 100
_MAX_REFUSAL_CHARACTERS = 10_000
_DAMAGED = ": the file is damaged or malicious."
_DEFAULT_LIMITS = BookLimits()
_OPTIONAL_PACKAGES = ("pypdfium2", "python-docx", "striprtf", "tree-sitter", "rapidocr")


class FileBooks:
    """Reads files of every `FileKind`."""

    def __init__(self, limits: BookLimits = _DEFAULT_LIMITS, *, max_in_process_bytes: int = 0) -> None:
        """Text files of at most `max_in_process_bytes` are read in this process if that is certain to be quick."""
        self._limits = limits
        self._max_in_process_bytes = max_in_process_bytes

    async def read(self, path: Path) -> Book:
        """Reads a file. Raises Invalid, with a one-line message without the path, for one that is too large, damaged,
        malicious or of an unknown kind."""
        ending = find_ending(path)
        if ending is None:
            raise Invalid(
                f"Files ending in {path.suffix.lower()!a} cannot be read. Supported: {' '.join(FILE_ENDINGS)}."
            )
        file = await asyncio.to_thread(_open_file, path, self._limits.file_bytes)
        with file:
            answer = await asyncio.to_thread(self._read_small_text, file, ending)
            if answer is None:
                answer = await asyncio.to_thread(_parse_output, await self._run_worker(file, ending))
        book = await asyncio.to_thread(_build_book, answer)
        return book if book.title else replace(book, title=_title_from_name(path, ending))

    def _read_small_text(self, file: IO[bytes], ending: str) -> dict[str, Any] | None:
        if os.fstat(file.fileno()).st_size > self._max_in_process_bytes:
            return None
        from toolscript.adapters.files.worker import build_answer, is_quick

        data = file.read(self._max_in_process_bytes)
        if is_quick(data, ending):
            return build_answer(BytesIO(data), ending, self._limits)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        return None

    async def _run_worker(self, file: IO[bytes], ending: str) -> bytes:
        limits = self._limits
        sizes = (str(int(each)) for each in astuple(limits))
        child = await start_worker("toolscript.adapters.files.worker", ending, _find_ocr(), *sizes, stdin=file)
        try:
            async with asyncio.timeout(limits.seconds):
                output = await _read_output(
                    child,
                    limits.characters * _MAX_JSON_CHARACTERS_PER_CHARACTER
                    + limits.blocks * _JSON_CHARACTERS_PER_BLOCK
                    + _MAX_REFUSAL_CHARACTERS,
                )
                await child.wait()
        except TimeoutError as error:
            raise Invalid(f"Reading the file took longer than {limits.seconds:g} seconds and was stopped.") from error
        finally:
            await stop_process(child)
        if child.returncode:
            raise Invalid(f"The reader ended ({describe_exit(child.returncode)}){_DAMAGED}")
        return output


def describe_readers() -> str:
    """Names what decides how a file is read: this version, and the packages and programs that some kinds need. A file
    that one of them read may be read better by another."""
    packages = (f"{name} {_find_version(name)}" for name in _OPTIONAL_PACKAGES)
    return "; ".join([f"toolscript {toolscript.__version__}", *packages, _find_ocr()])


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _find_ocr() -> str:
    """Returns where tesseract is, or the name of the package that is used without it; empty if neither is installed."""
    return shutil.which("tesseract") or ("rapidocr" if find_spec("rapidocr") else "")


def _open_file(path: Path, max_bytes: int) -> IO[bytes]:
    """Opens a regular file of at most `max_bytes`. Raises Invalid otherwise."""
    try:
        file = open_regular(path)
    except FileNotFoundError as error:
        raise Invalid("No such file.") from error
    except (IsADirectoryError, Invalid) as error:
        raise Invalid("Not a regular file: name the files themselves.") from error
    except OSError as error:
        raise Invalid(f"The file cannot be opened: {error.strerror}.") from error
    size = os.fstat(file.fileno()).st_size
    if size > max_bytes:
        file.close()
        raise Invalid(f"The file has {size / 10**6:,.0f} MB; the limit is {max_bytes / 10**6:,.0f} MB. Split it.")
    return file


async def _read_output(child: Process, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while child.stdout and (more := await child.stdout.read(_CHUNK_BYTES)):
        chunks.append(more)
        size += len(more)
        if size > max_bytes:
            raise Invalid("The file holds too much text. Split it.")
    return b"".join(chunks)


def _parse_output(output: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = {"positions": [], "blocks": []}
    try:
        for line in BytesIO(output):
            for name, value in json.loads(line).items():
                if name in {"positions", "blocks"}:
                    answer[name] += value
                else:
                    answer[name] = value
    except ValueError as error:
        raise Invalid(f"The reader gave no answer{_DAMAGED}") from error
    if not output:
        raise Invalid(f"The reader gave no answer{_DAMAGED}")
    return answer


def _build_book(answer: dict[str, Any]) -> Book:
    if "refused" in answer:
        raise Invalid(str(answer["refused"]))
    positions = [Position(*each) for each in answer["positions"]]
    blocks = tuple(Block(text, BlockKind(kind), positions[position]) for text, kind, position in answer["blocks"])
    return Book(answer["title"], tuple(answer["authors"]), blocks, answer["date"], tuple(answer["warnings"]))


def _title_from_name(path: Path, ending: str) -> str:
    """Makes a title of the file name: `my_notes-2.txt` becomes `my notes 2`. The name of a code file stays as it is."""
    if KINDS_BY_ENDING[ending] is FileKind.CODE:
        return path.name
    return " ".join(path.stem.replace("_", " ").replace("-", " ").split())
