"""Reads files with lines `NAME=VALUE`: for the environment of servers, and `.env` for the settings of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping

SETTINGS_PREFIX = "TOOLSCRIPT_"
MAX_SETTINGS_BYTES = 2**16
VARIABLE_NAME = r"[^=\x00-\x1f\x7f]+"


def parse_env_file(text: str) -> Iterator[tuple[str, str]]:
    """Yields the NAME=value lines, without quotes around a value and without a comment after it."""
    for line in text.split("\n"):
        name, equals, value = (part.strip() for part in line.partition("="))
        name, quote = name.removeprefix("export ").strip(), value[:1]
        if not equals or name.startswith("#") or not re.fullmatch(VARIABLE_NAME, name):
            continue
        end = value.find(quote, 1) if quote in {"'", '"'} else -1
        yield name, value[1:end] if end > 0 else value.partition(" #")[0].rstrip()


def add_settings(path: str, environment: MutableMapping[str, str]) -> None:
    """Adds the settings in a file to the environment. Values of the environment stay. Other variables in the file are
    for other programs. A file that cannot be read has none."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (pathlib takes 10 ms to import)
            text = file.read(MAX_SETTINGS_BYTES).decode(errors="surrogateescape")
    except OSError:
        return
    for name, value in parse_env_file(text.removeprefix("\ufeff").replace("\r\n", "\n")):
        if name.startswith(SETTINGS_PREFIX) and "\0" not in value:
            environment.setdefault(name, value)
