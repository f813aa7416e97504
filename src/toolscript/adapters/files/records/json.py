"""Parses JSON and JSON lines: a record is a section, named by its title if it has one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolscript.adapters.files.parts import Heading, ParsedBook, Part, TextBlock, clean_prose, make_block
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BlockKind, format_content

_TITLE_FIELDS = ("title", "name", "subject", "headline", "question")
_MAX_TITLE_CHARACTERS = 200
# Longer texts are paragraphs of their own.
_LONG_TEXT = 300
_MAX_BAD_LINES = 0.1


def read_records(text: str) -> ParsedBook:
    """Parses a JSON value, or one in each line. Raises Invalid for a file that is neither; of many lines a few may be
    damaged."""
    text = text.lstrip("\ufeff")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise Invalid("The file is nested too deeply.") from error
    except ValueError as error:
        return ParsedBook(list(_read_lines(text, error)))
    records = value if isinstance(value, list) else [value]
    return ParsedBook([part for record in records for part in _build_record(record, None)])


def _read_lines(text: str, error: ValueError) -> Iterator[Part]:
    bad = read = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            bad += 1
            continue
        read += 1
        yield from _build_record(record, number)
    if bad > read * _MAX_BAD_LINES:
        raise Invalid(f"The file is not valid JSON: {error}.") from error


def _build_record(record: Any, line: int | None) -> Iterator[Part]:
    if not isinstance(record, Mapping):
        text = record if isinstance(record, str) else json.dumps(record, ensure_ascii=False, indent=1)
        yield from (_place(block, line) for block in make_block(text, BlockKind.CODE))
        return
    name = next((key for key in record if str(key).lower() in _TITLE_FIELDS and _is_title(record[key])), None)
    yield Heading(clean_prose(record[name]) if name is not None else "", 0)
    texts = {key: value for key, value in record.items() if isinstance(value, str) and len(value) > _LONG_TEXT}
    rest = {str(key): value for key, value in record.items() if key not in texts and (key != name or len(record) == 1)}
    yield from (_place(block, line) for block in make_block(format_content(rest), BlockKind.CODE))
    for key, value in texts.items():
        for number, paragraph in enumerate(value.replace("\r\n", "\n").split("\n\n")):
            lead = f"{key}: " if number == 0 else ""
            yield from (_place(block, line) for block in make_block(lead + paragraph))


def _place(block: TextBlock, line: int | None) -> TextBlock:
    return TextBlock(block.text, block.kind, None, line)


def _is_title(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= _MAX_TITLE_CHARACTERS
