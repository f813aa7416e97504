"""Parses spreadsheets (XLSX): a sheet is a chapter, and rows between blank rows are a table with its own header. Rows
are read one by one: a tree of a large sheet takes ten times its size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from xml.etree.ElementTree import Element  # only the type
from zipfile import ZipFile

from toolscript.adapters.files.archive import open_archive, parse_xml, read_member, walk_xml
from toolscript.adapters.files.office.package import read_properties, read_relations
from toolscript.adapters.files.parts import Heading, ParsedBook, Part
from toolscript.adapters.files.records.table import build_table

_WORKBOOK = "xl/workbook.xml"
_BUILT_IN_DATES = frozenset({*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)})
_QUOTED = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')
_DATE_SIGNS = re.compile(r"[ymdhs]", re.IGNORECASE)
_REFERENCE = re.compile(r"([A-Z]{1,3})\d+\Z")
_EPOCHS = {False: datetime(1899, 12, 30), True: datetime(1904, 1, 1)}  # noqa: DTZ001 # a sheet has no time zone
_MAX_DAYS = 2_958_465

Row = tuple[int, Mapping[int, str]]
"""The number of a row, and its cells by column."""


@dataclass(slots=True)
class _Workbook:
    """What the cells of all sheets refer to."""

    strings: list[str] = field(default_factory=list)
    date_styles: set[int] = field(default_factory=set)
    epoch: datetime = _EPOCHS[False]


def read_spreadsheet(data: bytes) -> ParsedBook:
    """Parses the visible sheets of a spreadsheet. Raises Invalid if it is damaged."""
    archive = open_archive(data)
    about = read_properties(archive)
    relations = read_relations(archive, _WORKBOOK)
    root = parse_xml(read_member(archive, _WORKBOOK), _WORKBOOK)
    workbook = _read_workbook(archive, root)
    parts: list[Part] = []
    for sheet in root.iter("sheet"):
        relation = relations.get(sheet.get("id", ""))
        if relation and relation.kind == "worksheet" and sheet.get("state", "visible") == "visible":
            reader = _SheetReader(workbook)
            walk_xml(read_member(archive, relation.path), relation.path, reader.begin, reader.end, reader.add_text)
            parts += build_sheet(sheet.get("name", ""), reader.rows)
    return ParsedBook(parts, about.title, about.authors, about.date)


def build_sheet(name: str, rows: Iterable[Row]) -> Iterator[Part]:
    """Builds the parts of a sheet: a table for each group of adjacent rows."""
    yield Heading(name, 0)
    group: list[Row] = []
    for row in rows:
        if group and row[0] > group[-1][0] + 1:
            yield from _build_group(group)
            group = []
        group.append(row)
    yield from _build_group(group)


def _build_group(rows: list[Row]) -> Iterator[Part]:
    columns = sorted({column for _, cells in rows for column in cells})
    yield from build_table([(number, [cells.get(column, "") for column in columns]) for number, cells in rows])


def _read_workbook(archive: ZipFile, root: Element) -> _Workbook:
    workbook = _Workbook()
    members = set(archive.namelist())
    properties = next(root.iter("workbookPr"), None)
    is_old = properties is not None and properties.get("date1904") in {"1", "true"}
    workbook.epoch = _EPOCHS[is_old]
    relations = {relation.kind: relation.path for relation in read_relations(archive, _WORKBOOK).values()}
    if (path := relations.get("sharedStrings", "")) in members:
        strings = _StringReader(workbook.strings)
        walk_xml(read_member(archive, path), path, strings.begin, strings.end, strings.add_text)
    if (path := relations.get("styles", "")) in members:
        workbook.date_styles = _find_date_styles(parse_xml(read_member(archive, path), path))
    return workbook


def _find_date_styles(styles: Element) -> set[int]:
    """Returns the numbers of the styles that show a number as a date."""
    dates = {
        each.get("numFmtId", "")
        for each in styles.iter("numFmt")
        if _DATE_SIGNS.search(_QUOTED.sub("", each.get("formatCode", "")))
    } | set(map(str, _BUILT_IN_DATES))
    formats = next(styles.iter("cellXfs"), None)
    return {
        number for number, each in enumerate(formats if formats is not None else ()) if each.get("numFmtId") in dates
    }


@dataclass(slots=True)
class _StringReader:
    """Collects the shared strings; readings of Japanese words (`rPh`) are left out."""

    strings: list[str]
    text: list[str] = field(default_factory=list)
    is_text: bool = False
    is_reading: bool = False

    def begin(self, tag: str, _: Mapping[str, str]) -> None:
        self.is_text = tag == "t" and not self.is_reading
        self.is_reading = self.is_reading or tag == "rPh"

    def end(self, tag: str) -> None:
        self.is_text = False
        if tag == "rPh":
            self.is_reading = False
        elif tag == "si":
            self.strings.append("".join(self.text))
            self.text = []

    def add_text(self, text: str) -> None:
        if self.is_text:
            self.text.append(text)


@dataclass(slots=True)
class _SheetReader:
    """Collects the rows of a sheet that have text."""

    workbook: _Workbook
    rows: list[Row] = field(default_factory=list)
    number: int = 0
    column: int = -1
    cells: dict[int, str] = field(default_factory=dict)
    kind: str = ""
    style: str = ""
    text: list[str] = field(default_factory=list)
    is_value: bool = False

    def begin(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.is_value = tag in {"v", "t"}
        if tag == "row":
            given = attributes.get("r", "")
            self.number, self.column, self.cells = int(given) if given.isdecimal() else self.number + 1, -1, {}
        elif tag == "c":
            found = _REFERENCE.match(attributes.get("r", ""))
            self.column = _find_column(found[1]) if found else self.column + 1
            self.kind, self.style, self.text = attributes.get("t", "n"), attributes.get("s", ""), []

    def end(self, tag: str) -> None:
        self.is_value = False
        if tag == "c" and (value := self._format("".join(self.text))):
            self.cells[self.column] = value
        elif tag == "row" and self.cells:
            self.rows.append((self.number, self.cells))

    def add_text(self, text: str) -> None:
        if self.is_value:
            self.text.append(text)

    def _format(self, value: str) -> str:
        value = value.strip()
        if self.kind == "s":
            number = int(value) if value.isdecimal() else -1
            return self.workbook.strings[number].strip() if 0 <= number < len(self.workbook.strings) else ""
        if self.kind == "b":
            return "true" if value == "1" else "false"
        if self.kind != "n" or not value:
            return value
        if self.style.isdecimal() and int(self.style) in self.workbook.date_styles:
            return _format_date(value, self.workbook.epoch)
        return value.removesuffix(".0")


def _format_date(value: str, epoch: datetime) -> str:
    try:
        days = float(value)
    except ValueError:
        return value
    if not 0 <= days <= _MAX_DAYS:
        return value
    moment = epoch + timedelta(seconds=round(days * 86_400))
    if days < 1:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d" if moment.hour == moment.minute == moment.second == 0 else "%Y-%m-%d %H:%M")


def _find_column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1
