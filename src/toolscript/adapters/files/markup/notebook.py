"""Parses Jupyter notebooks: Markdown cells as Markdown, code cells with the text that they printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolscript.adapters.files.markup.markdown import read_markdown_parts
from toolscript.adapters.files.parts import ParsedBook, Part, clean_prose, extract_title, make_block
from toolscript.domain.errors import Invalid
from toolscript.domain.knowledge import BlockKind

_MAX_OUTPUT_CHARACTERS = 2_000


def read_notebook(text: str) -> ParsedBook:
    """Parses a notebook, of version 3 or later. Raises Invalid for a file that is not one."""
    try:
        notebook = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise Invalid(f"The file is not a valid notebook: {error}.") from error
    if not isinstance(notebook, Mapping) or not ({"cells", "worksheets"} & notebook.keys()):
        raise Invalid("The file is not a notebook: it has no cells.")
    sheets = [notebook, *_mappings(notebook.get("worksheets"))]
    cells = [cell for sheet in sheets for cell in _mappings(sheet.get("cells"))]
    about = notebook.get("metadata")
    metadata = about if isinstance(about, Mapping) else {}
    title = metadata.get("title")
    names = (author.get("name") for author in _mappings(metadata.get("authors")))
    return extract_title(
        ParsedBook(
            [part for cell in cells for part in _read_cell(cell)],
            clean_prose(title) if isinstance(title, str) else "",
            tuple(clean_prose(name) for name in names if isinstance(name, str)),
        )
    )


def _read_cell(cell: Mapping[str, Any]) -> Iterator[Part]:
    text = _join_text(cell.get("source", cell.get("input")))
    match cell.get("cell_type"):
        case "code":
            yield from make_block(text, BlockKind.CODE)
            for output in _mappings(cell.get("outputs")):
                yield from make_block(_read_output(output), BlockKind.CODE)
        case "heading":
            level = cell.get("level")
            yield from read_markdown_parts(f"{'#' * (level if isinstance(level, int) else 1)} {text}")
        case _:
            yield from read_markdown_parts(text)


def _read_output(output: Mapping[str, Any]) -> str:
    """Returns the text of an output; pictures and other data are left out."""
    if output.get("output_type") == "error":
        return f"{output.get('ename', 'Error')}: {output.get('evalue', '')}"
    data = output.get("data")
    text = _join_text(output.get("text") or (data.get("text/plain") if isinstance(data, Mapping) else ""))
    return text if len(text) <= _MAX_OUTPUT_CHARACTERS else f"{text[:_MAX_OUTPUT_CHARACTERS]}…"


def _join_text(value: object) -> str:
    if isinstance(value, list):
        return "".join(each for each in value if isinstance(each, str))
    return value if isinstance(value, str) else ""


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
