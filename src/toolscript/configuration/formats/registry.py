"""The format of each file."""

from __future__ import annotations

from pathlib import Path

from toolscript.configuration.formats.file_format import FileFormat
from toolscript.configuration.formats.json import JsonFormat


def name_format(file: Path) -> str:
    """The name of a file's format, for `find_format`."""
    return {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}.get(file.suffix.lower(), "json")


def find_format(name: str) -> FileFormat:
    # Imported here, because most users have JSON alone.
    if name == "toml":
        from toolscript.configuration.formats.toml import TomlFormat

        return TomlFormat()
    if name == "yaml":
        from toolscript.configuration.formats.yaml import YamlFormat

        return YamlFormat()
    return JsonFormat()
