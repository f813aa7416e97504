"""Files as documents: which of them are read, and what is made of each. What cannot be read is told in one line and
holds up nothing else."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from toolscript.domain.documents import MAX_TEXT_LENGTH, Document, check_document
from toolscript.domain.errors import Invalid
from toolscript.surfaces.cli.files.titles import html_text, markdown_title, rst_title

ENDINGS = (".txt", ".md", ".rst", ".html", ".htm", ".json", ".jsonl")
# A character is four bytes at most.
LARGEST_FILE = 4 * MAX_TEXT_LENGTH
LONGEST_TITLE = 200
SOURCE = "source_path"
"""The metadata that says which file a document was made of. It is ours: what a document says of it is not heard."""
_FIELDS = ("id", "title", "text", "metadata")


@dataclass(frozen=True, slots=True)
class Failure:
    """What could not be read, and why."""

    place: str
    problem: str


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is to be read, and what a document made of it is called."""

    file: Path
    name: str


@dataclass(slots=True)
class Search:
    """Finds the files under the given paths that are to be read."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    endings: Collection[str] = ENDINGS
    failures: list[Failure] = field(default_factory=list)
    left_out: set[Path] = field(default_factory=set)
    """What lies in folders and might have been read, but is no file, or a link that leads elsewhere."""

    def there(self, names: Sequence[str]) -> list[Path]:
        """Those of the named paths where something is. An empty name names nothing, and not the folder that one stands
        in."""
        paths = []
        for name in names:
            problem = _problem_at(name)
            if problem:
                self.failures.append(Failure(name or '""', problem))
            else:
                paths.append(Path(name))
        return paths

    def files(self, paths: Sequence[Path]) -> list[Found]:
        """The files, by path. What is hidden is left out, links that lead out of the folder too, and no folder is
        entered twice."""
        found: dict[Path, Found] = {}
        for path in paths:
            place = normal(path)
            if place.is_dir():
                for file in self._below(place, set()):
                    found.setdefault(file, Found(file, file.relative_to(place).as_posix()))
            else:
                found.setdefault(place, Found(place, place.name))
        return list(found.values())

    def note(self) -> str:
        """How much was left out, as people are told; nothing where it is nothing."""
        if not self.left_out:
            return ""
        if len(self.left_out) == 1:
            return "1 link or special file was left out"
        return f"{len(self.left_out)} links and special files were left out"

    def _below(self, root: Path, entered: set[str]) -> Iterator[Path]:
        folders, here = [root], Path(os.path.realpath(root))
        while folders:
            folder = folders.pop()
            real = os.path.realpath(folder)
            if real in entered:
                continue
            entered.add(real)
            try:
                entries = sorted(folder.iterdir())
            except OSError as error:
                self.failures.append(Failure(str(folder), error.strerror or str(error)))
                continue
            inner = []
            for entry in entries:
                name = entry.relative_to(root)
                if entry.name.startswith(".") or _fits(name, self.exclude):
                    continue
                mode = self._mode(entry)
                is_inside = Path(os.path.realpath(entry)).is_relative_to(here)
                if mode is None or (stat.S_ISREG(mode) and not self._is_wanted(name)):
                    continue
                if is_inside and stat.S_ISDIR(mode):
                    inner.append(entry)
                elif is_inside and stat.S_ISREG(mode):
                    yield entry
                elif not self.include or stat.S_ISDIR(mode) or _fits(name, self.include):
                    self.left_out.add(entry)
            folders += reversed(inner)

    def _is_wanted(self, path: Path) -> bool:
        return _fits(path, self.include) if self.include else path.suffix.lower() in self.endings

    def _mode(self, entry: Path) -> int | None:
        """What it is, or what the link leads to: 0 for one that leads nowhere, None when that cannot be found out."""
        try:
            return entry.stat().st_mode
        except OSError as error:
            if os.path.islink(entry):  # noqa: PTH114 - asked of a path that is too long, this one answers
                return 0
            self.failures.append(Failure(str(entry), error.strerror or str(error)))
            return None


def _problem_at(name: str) -> str | None:
    """Why nothing can be read there."""
    if not name:
        return "is not there"
    try:
        normal(Path(name)).stat()
    except (FileNotFoundError, NotADirectoryError):
        return "is not there"
    except OSError as error:
        return error.strerror or str(error)
    return None


def normal(path: Path) -> Path:
    """The whole path without any `..`. A link stays what it is called."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def read(found: Found, more: Mapping[str, Any]) -> Iterator[Document | Failure]:
    """The documents of a file, with that metadata beside what they have; and whatever is wrong with it."""
    more = {**more, SOURCE: str(found.file)}
    try:
        told = _about(found.file)
        if found.file.suffix.lower() == ".jsonl":
            made = _from_lines(found, told, more)
        else:
            made = _from_text(found, _text_of(found.file), told, more)
        yield from made
    except OSError as error:
        yield Failure(str(found.file), error.strerror or str(error))
    except Invalid as error:
        yield Failure(str(found.file), error.message)


def _fits(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path.as_posix(), each) or fnmatchcase(path.name, each) for each in patterns)


def _about(file: Path) -> dict[str, Any]:
    changed = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return {"path": str(file), "extension": file.suffix.lower(), "modified": changed.isoformat(timespec="seconds")}


def _text_of(file: Path) -> str:
    if file.stat().st_size > LARGEST_FILE:
        raise Invalid(f"is larger than {LARGEST_FILE // 10**6} MB")
    return _decoded(file.read_bytes())


def _decoded(content: bytes) -> str:
    if b"\0" in content:
        raise Invalid("is no text")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid("is not UTF-8") from None
    if not text.strip():
        raise Invalid("is empty")
    return text


def _from_text(
    found: Found, text: str, about: Mapping[str, Any], more: Mapping[str, Any]
) -> Iterator[Document | Failure]:
    ending, title = found.file.suffix.lower(), ""
    if ending == ".json":
        yield from _from_json(found, text, about, more)
        return
    if ending in {".html", ".htm"}:
        title, text = html_text(text)
        if not text:
            raise Invalid("has no text between its tags")
    elif ending == ".md":
        title = markdown_title(text)
    elif ending == ".rst":
        title = rst_title(text)
    title = " ".join(title.split())[:LONGEST_TITLE] or found.file.name
    yield _checked(Document(found.name, text, title, {**about, **more}), str(found.file))


def _from_json(
    found: Found, text: str, about: Mapping[str, Any], more: Mapping[str, Any]
) -> Iterator[Document | Failure]:
    told = _json(text)
    if isinstance(told, dict) and isinstance(told.get("documents"), list):
        told = told["documents"]
    if isinstance(told, dict):
        yield _from_object({"id": found.name, **told}, str(found.file), about, more)
        return
    if not isinstance(told, list):
        raise Invalid(f"holds no document: give an object with {', '.join(_FIELDS)}, or a list of them")
    for number, each in enumerate(told, start=1):
        yield _from_object(each, f"{found.file}, document {number}", about, more)


def _from_lines(found: Found, about: Mapping[str, Any], more: Mapping[str, Any]) -> Iterator[Document | Failure]:
    some = False
    with found.file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            some, place = True, f"{found.file}, line {number}"
            try:
                yield _from_object(_json(_decoded(line)), place, about, more)
            except Invalid as error:
                yield Failure(place, error.message)
    if not some:
        raise Invalid("is empty")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"is no JSON: {error}") from error


def _from_object(told: Any, place: str, about: Mapping[str, Any], more: Mapping[str, Any]) -> Document | Failure:
    problem = _problem(told)
    if problem:
        return Failure(place, problem)
    metadata = {**about, **(told.get("metadata") or {}), **more}
    return _checked(Document(str(told["id"]), told["text"], told.get("title") or "", metadata), place)


def _problem(told: Any) -> str | None:
    if not isinstance(told, dict):
        return f"is no document: give an object with {', '.join(_FIELDS)}"
    unknown = sorted(told.keys() - set(_FIELDS))
    if unknown:
        return f"has a field {unknown[0]!r}: a document has {', '.join(_FIELDS)}"
    if not isinstance(told.get("id"), str | int) or isinstance(told.get("id"), bool):
        return "has no id: give a text"
    if not isinstance(told.get("text"), str):
        return "has no text"
    if not isinstance(told.get("title"), str | None):
        return "has a title that is no text"
    return None if isinstance(told.get("metadata"), dict | None) else "has metadata that is no object"


def _checked(document: Document, place: str) -> Document | Failure:
    try:
        check_document(document)
    except Invalid as error:
        return Failure(place, error.message)
    return document
