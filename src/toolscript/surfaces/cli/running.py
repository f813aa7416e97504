"""A gateway that is running says where; commands on the same data folder ask it instead of opening the folder."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolscript.domain.errors import Invalid, NotFound, ToolscriptError, Unavailable

FILE = "gateway.json"
PATIENCE_SECONDS = 10
_ERRORS = {kind.code: kind for kind in (Invalid, NotFound, Unavailable)}


@contextmanager
def announced(data: Path, url: str) -> Iterator[None]:
    """Leaves a note with the gateway's address in the data folder for as long as it runs."""
    note, draft = data / FILE, data / f"{FILE}.new"
    data.mkdir(parents=True, exist_ok=True)
    draft.write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")
    draft.replace(note)
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def ask(data: Path, path: str, **parameters: Any) -> Any | None:
    """What the gateway on that folder answers, or None when there is none: a note may outlive a gateway that was
    killed. An error of the gateway is raised as the error that it is."""
    try:
        url = json.loads((data / FILE).read_text(encoding="utf-8"))["url"]
        asked = f"{url}{path}?{urllib.parse.urlencode(parameters, errors='replace')}"
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310  (our own note, on loopback)
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        raise _error(refused) from refused
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _error(refused: urllib.error.HTTPError) -> ToolscriptError:
    try:
        told = json.load(refused)["error"]
        return _ERRORS.get(told["code"], ToolscriptError)(told["message"], details=told["details"])
    except (ValueError, KeyError, TypeError):
        return Unavailable(f"the gateway answered {refused.code} without saying why")
