"""The files that a gateway writes for the first answers of the next pipes."""

from __future__ import annotations

import json
import os
import re
import zlib
from typing import Any

from toolscript import __version__

FOLDER = "early_answers"


class EarlyAnswers:
    """The answers that the last gateway has left for these settings, or else the packaged answers."""

    def __init__(self, folder: str) -> None:
        self._folders = (folder, os.path.join(os.path.dirname(__file__), "..", "data", FOLDER))
        self._read: dict[str, dict[str, bytes]] = {}

    def find(self, version: str, method: str) -> bytes | None:
        """The JSON of the method's result in that version of the protocol."""
        if version not in self._read:
            is_date = re.fullmatch(r"\d{4}-\d{2}-\d{2}", version)
            found = (self._load(f"{folder}/{version}") for folder in self._folders) if is_date else ()
            self._read[version] = next((answers for answers in found if answers), {})
        return self._read[version].get(method)

    def _load(self, path: str) -> dict[str, bytes]:
        """The answers in a file; none where it is missing, damaged, or of another version of Toolscript."""
        try:
            with open(path, "rb") as file:
                head, _, body = file.read().partition(b"\n")
            if json.loads(head) != describe_answers(body):
                return {}
            return {str(method): line for method, line in (_split_answer(line) for line in body.splitlines())}
        except (OSError, ValueError):
            return {}


def describe_answers(body: bytes) -> dict[str, Any]:
    """The first line of a file of early answers."""
    return {"toolscript": __version__, "checksum": zlib.crc32(body)}


def _split_answer(line: bytes) -> tuple[str, bytes]:
    method, _, answer = line.partition(b"\t")
    return method.decode(), answer
