"""Warnings about lasting conditions: one command a day prints them for a data folder, not every command."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from toolscript.configuration.data_files import replace_file
from toolscript.settings import Settings, describe_values, find_unknown_variables, get_variable, is_secret
from toolscript.surfaces.cli.client.announcement import read_announcement
from toolscript.surfaces.cli.terminal.options import get_overrides
from toolscript.surfaces.cli.terminal.text import print_note

FILE = "notices.json"
REPEAT_SECONDS = 24 * 3600
# Log events that stay true until somebody changes something.
LASTING_EVENTS = frozenset({"model_fallback", "no_model"})
# Commands print these themselves, with the name of the server.
PRINTED_EVENTS = frozenset({"server_failed"})
# Settings that a command needs itself, or sends with its requests.
OWN_SETTINGS = (
    "data_dir gateway_url config api_key tenant search_limit search_threshold call_timeout log_level host port"
)

log = logging.getLogger(__name__)


def print_note_once(data: Path, text: str) -> None:
    """Prints a note, unless a command on the same folder did so today."""
    if _is_new(data, text):
        print_note(text)


class LastingEvents(logging.Filter):
    """Lets log lines about lasting conditions through once a day."""

    def __init__(self, data: Path) -> None:
        super().__init__()
        self._data = data

    def filter(self, record: logging.LogRecord) -> bool:
        event = record.getMessage()
        if event in LASTING_EVENTS:
            return _is_new(self._data, f"{event} {vars(record).get('reason')}")
        return event not in PRINTED_EVENTS


def report_unused_variables(settings: Settings, *, is_service: bool) -> None:
    """Names environment variables that look like settings and are none, or that this command does not use: in the log
    of a service, else in a note."""
    if settings.gateway_url and not is_service and "gateway_url" not in get_overrides():
        # Every time: what a command writes would otherwise be looked for on the wrong machine.
        print_note(f"TOOLSCRIPT_GATEWAY_URL has no effect on this command: it uses the data folder {settings.data}")
    for variable, nearest in find_unknown_variables(os.environ).items():
        if is_service:
            log.warning("unknown_variable", extra={"variable": variable, "nearest": nearest})
        else:
            hint = f"did you mean {nearest}?" if nearest else "no setting has that name"
            print_note_once(settings.data, f"the variable {variable} is unknown and ignored: {hint}")


def report_void_settings(settings: Settings) -> None:
    """Names settings of this command that have no effect because a gateway answers."""
    if settings.gateway_url:
        for name in ("config", "tenant"):
            if get_overrides().get(name) is not None:
                print_note(f"--{name} has no effect: the gateway at {settings.gateway_url} and your key decide that")
        return
    for text in find_void_settings(settings):
        print_note_once(settings.data, text)


def find_void_settings(settings: Settings) -> Iterator[str]:
    """The settings of this command that have no effect because the gateway on the data folder has other values."""
    announced = read_announcement(settings.data)
    if announced is None:
        return
    own = {get_variable(name) for name in OWN_SETTINGS.split()}
    for variable, value in describe_values(settings, salt=announced.key or "").items():
        theirs = announced.settings.get(variable)
        if variable not in own and value != theirs:
            values = "another value" if is_secret(variable) else theirs or "the default"
            yield f"{variable} has no effect: the gateway {announced.describe()} uses {values}; restart it to change it"


def _is_new(data: Path, text: str) -> bool:
    """Whether the text was not printed today. Remembers it; errors are ignored: then it is printed again."""
    digest, now = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16], time.time()
    try:
        known = json.loads((data / FILE).read_text(encoding="utf-8"))
        recent = {str(key): float(at) for key, at in known.items() if now - REPEAT_SECONDS < float(at) <= now}
    except (OSError, ValueError, TypeError, AttributeError):
        recent = {}
    if digest in recent:
        return False
    with suppress(OSError):
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(data / FILE, json.dumps(recent | {digest: now}))
    return True
