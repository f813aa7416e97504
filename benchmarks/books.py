"""The command `python -m benchmarks.books FOLDER`: four long, freely licensed books from Debian packages, as a set for
`toolscript eval FOLDER`, with questions that were written by hand before any search.

There are two sets of questions. The everyday ones use the words of people who work in the field, about sections drawn
at random from each whole book. The paraphrased ones avoid the words of the books; those that are not held out were used
while the pipeline was developed.

The books are not part of this repository. They are The Debian Administrator's Handbook (GPL-2+ or CC-BY-SA-3.0, many
pages of HTML), the Bash Reference Manual (GFDL-1.3+ without invariant sections, PDF), the Git User Manual (GPL-2, one
page of HTML) and the Debian Policy Manual (GPL-2+, plain text).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

DATA = Path(__file__).parent / "data"
QUESTIONS = ("everyday", "paraphrased")
LINK = re.compile(r'href="([^"#:]+\.html)(?:#[^"]*)?"')


@dataclass(frozen=True, slots=True)
class DebianBook:
    """A book, the package it is in, and where in the package; a folder's pages are read in the order in which its
    index.html names them. `digest` is that of the text which the questions were written for."""

    name: str
    title: str
    authors: tuple[str, ...]
    package: str
    inside: str
    digest: str


BOOKS = (
    DebianBook(
        "handbook",
        "The Debian Administrator's Handbook",
        ("Raphaël Hertzog", "Roland Mas"),
        "debian-handbook",
        "usr/share/doc/debian-handbook/html/en-US",
        "2cad785ac95876ecea10fb865dfdcd80d1fc6eee7fc666b0ae2a16aa9d153623",
    ),
    DebianBook(
        "bash",
        "Bash Reference Manual",
        ("Chet Ramey", "Brian Fox"),
        "bash-doc",
        "usr/share/doc/bash/bashref.pdf",
        "8cc0a4b5cda7e157dd1dba3e5ab05e473f10e424a890dced2ceb3a8a69ff4215",
    ),
    DebianBook(
        "git",
        "Git User Manual",
        ("J. Bruce Fields",),
        "git-doc",
        "usr/share/doc/git-doc/user-manual.html",
        "ed17999fb217dde78bfd545e3f1a34832176be2db4a840e45d4bbc724fb35a6c",
    ),
    DebianBook(
        "policy",
        "Debian Policy Manual",
        ("The Debian Policy mailing list",),
        "debian-policy",
        "usr/share/doc/debian-policy/policy.txt.gz",
        "9b01821f515a9736655827ddcdbb84dccd69f555c2ed06435cb6b7dbb37d8685",
    ),
)


class NoBooks(Exception):
    """The books cannot be downloaded here; says why."""


def lay_out(folder: Path, books: Sequence[DebianBook] = BOOKS, questions: str = QUESTIONS[0]) -> None:
    """Writes a set of these books, with the questions that they answer, to a folder. Raises NoBooks."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for book in books:
        with TemporaryDirectory() as unpacked:
            _unpack(book.package, Path(unpacked))
            files = _copy(book, Path(unpacked) / book.inside, folder / book.name)
        if _digest(files) != book.digest:
            print(
                f"{book.package} has a newer version of {book.title}: answers may be in other places", file=sys.stderr
            )
        entries.append(_describe(book, [str(file.relative_to(folder)) for file in files]))
    write_questions(folder, books, questions)
    (folder / "books.toml").write_text("\n".join(entries), encoding="utf-8")


def write_questions(folder: Path, books: Sequence[DebianBook] = BOOKS, questions: str = QUESTIONS[0]) -> None:
    """Replaces the questions in the folder with those about these books."""
    titles = {book.title for book in books}
    written = (DATA / f"{questions}.jsonl").read_text(encoding="utf-8")
    rows = [line for line in written.splitlines() if _is_about(line, titles)]
    (folder / "queries.jsonl").write_text("\n".join([*rows, ""]), encoding="utf-8")


def _unpack(package: str, folder: Path) -> None:
    missing = [name for name in ("apt-get", "dpkg-deb") if not shutil.which(name)]
    if missing:
        raise NoBooks(f"command not found: {', '.join(missing)} (the books come in Debian packages)")
    command = ["apt-get", "download", package]
    fetch_json = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = next(folder.glob("*.deb"), None)
    if not found:
        raise NoBooks(f"apt-get download {package}: {fetch_json.stderr.strip() or 'no package'}")
    subprocess.run(["dpkg-deb", "-x", found, folder], check=True)


def _copy(book: DebianBook, found: Path, place: Path) -> list[Path]:
    """Copies the book's files; returns them in reading order."""
    if not found.exists():
        raise NoBooks(f"{book.package} has no {book.inside}: its layout has changed")
    place.mkdir(parents=True, exist_ok=True)
    if found.is_dir():
        index = (found / "index.html").read_text(encoding="utf-8")
        names = dict.fromkeys(["index.html", *(n for n in LINK.findall(index) if (found / n).is_file())])
        return [Path(shutil.copy(found / name, place)) for name in names]
    if found.suffix == ".gz":
        text = place / found.stem
        text.write_bytes(gzip.decompress(found.read_bytes()))
        return [text]
    return [Path(shutil.copy(found, place))]


def _digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()


def _describe(book: DebianBook, files: Sequence[str]) -> str:
    # Strings and lists of strings are the same in JSON and TOML.
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}"
        for key, value in (("title", book.title), ("authors", book.authors))
    ]
    return "\n".join(["[[book]]", *lines, f"files = {json.dumps(files, indent=2)}", ""])


def _is_about(line: str, titles: set[str]) -> bool:
    return all(place["source"] in titles for place in json.loads(line)["relevant"])


def main() -> None:
    """Downloads the books and writes the set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.books", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the set")
    parser.add_argument(
        "--only", choices=[b.name for b in BOOKS], action="append", help="only this book; may be repeated"
    )
    parser.add_argument(
        "--questions", choices=QUESTIONS, default=QUESTIONS[0], help="which questions (default: %(default)s)"
    )
    options = parser.parse_args()
    chosen = [book for book in BOOKS if not options.only or book.name in options.only]
    try:
        lay_out(options.folder, chosen, options.questions)
    except NoBooks as reason:
        sys.exit(str(reason))
    print(f"{options.folder}: {len(chosen)} books. Measure with: toolscript eval {options.folder}")


if __name__ == "__main__":
    main()
