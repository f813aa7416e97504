"""What Office's newer files have in common: relations between the files in the archive, and the properties."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import NamedTuple
from xml.etree.ElementTree import Element  # only the type
from zipfile import ZipFile

from toolscript.adapters.files.archive import parse_xml, read_member
from toolscript.adapters.files.dates import find_date
from toolscript.adapters.files.parts import clean_prose, split_authors
from toolscript.adapters.files.titles import clean_authors, clean_title


class Relation(NamedTuple):
    """A relation to another file in the archive: its kind (the last word of its type), and the path."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a file, as far as it has them."""

    title: str = ""
    authors: tuple[str, ...] = ()
    date: str = ""


def read_relations(archive: ZipFile, path: str) -> dict[str, Relation]:
    folder, name = posixpath.split(path)
    place = f"{folder}/_rels/{name}.rels"
    if place not in archive.NameToInfo:  # a dict: `namelist` takes the square of a number of slides
        return {}
    listed = parse_xml(read_member(archive, place), place).iter("Relationship")
    return {
        each.get("Id", ""): Relation(
            each.get("Type", "").rpartition("/")[2],
            posixpath.normpath(posixpath.join("/", folder, each.get("Target", ""))).lstrip("/"),
        )
        for each in listed
        if each.get("TargetMode") != "External"
    }


def read_properties(archive: ZipFile, path: str = "docProps/core.xml") -> Properties:
    """Returns title, authors and date of a file."""
    if path not in archive.namelist():
        return Properties()
    root = parse_xml(read_member(archive, path), path)
    author = find_text(root, "initial-creator") or find_text(root, "creator")
    dates = (find_date(find_text(root, name)) for name in ("modified", "date", "created", "creation-date"))
    title, authors = clean_title(find_text(root, "title")), clean_authors(split_authors(author))
    return Properties(title, authors, next(filter(None, dates), ""))


def find_text(root: Element, name: str) -> str:
    found = next(root.iter(name), None)
    return clean_prose("".join(found.itertext())) if found is not None else ""
