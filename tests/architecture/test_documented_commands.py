"""The commands and requests of the README and the guide exist, with their options, routes and parameters."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from urllib.parse import parse_qsl, urlsplit

import click
import pytest

from docs.generate import ROOT
from toolscript.settings import load_settings
from toolscript.surfaces.cli.main import run
from toolscript.surfaces.http.app import create_http_app
from toolscript.surfaces.http.served_app import ServedApp

pytestmark = pytest.mark.req("I-03", "G-09")

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SHELL = {"", "sh", "bash", "console"}
GATEWAY = "http://127.0.0.1:3780"
# Where a command ends, at the latest.
ENDS = re.compile(r"[|&;<>]")


def read_commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Where each command line of the program stands, and its arguments."""
    for page in PAGES:
        blocks = (text for language, text in BLOCK.findall(page.read_text(encoding="utf-8")) if language in SHELL)
        for block in blocks:
            for match in re.finditer(rf"^(?:\$ )?(?:[A-Z0-9_]+=\S+ )*({program} .*)", block, re.MULTILINE):
                yield f"{page.name}: {match[1]}", _read_words(block[match.start(1) :])[1:]


def _read_words(text: str) -> list[str]:
    """The words of the first command, whose quotes and backslashes may join lines."""
    lines = text.replace("\\\n", " ").split("\n")
    for end in range(1, len(lines) + 1):
        with suppress(ValueError):  # an open quote
            words = shlex.split("\n".join(lines[:end]), comments=True)
            return list(takewhile(lambda word: not ENDS.match(word), words))
    raise AssertionError(f"no end of {lines[0]}")


def parse(arguments: list[str]) -> None:
    """Parses the arguments as the command line does, without running anything. Raises click.UsageError."""
    command: click.Command = run
    context, rest = click.Context(run, **run.context_settings), list(arguments)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(context, name)
        if found is None and not command.invoke_without_command:
            raise click.UsageError(f"no such command: {name}")
        if found is None:
            return
        command, context = found, click.Context(found, parent=context, info_name=name)
    try:
        command.make_context(command.name, rest, parent=context.parent)
    except click.BadParameter as error:
        if not isinstance(error.param and error.param.type, click.Path | click.File):
            raise
    except click.exceptions.Exit:
        pass


def test_every_documented_command_has_its_options() -> None:
    commands = list(read_commands("toolscript"))
    assert len(commands) > 100
    problems = []
    for place, arguments in commands:
        try:
            parse(arguments)
        except click.UsageError as error:
            problems.append(f"{place}: {error.format_message()}")
    assert problems == []


def test_every_documented_request_has_a_route_and_its_parameters() -> None:
    schema = create_http_app(ServedApp(load_settings(variables={}))).openapi()
    routes = {re.compile(re.sub(r"\{[^}]*\}", "[^?]+", path)): entry for path, entry in schema["paths"].items()}
    requests = list(read_commands("curl"))
    assert len(requests) > 15
    problems = []
    for place, arguments in requests:
        url = next(word for word in arguments if word.startswith(GATEWAY))
        default = "POST" if {"-d", "-F"}.intersection(arguments) else "GET"
        method = arguments[arguments.index("-X") + 1] if "-X" in arguments else default
        parts = urlsplit(url)
        found = [
            entry[method.lower()]
            for path, entry in routes.items()
            if path.fullmatch(parts.path) and method.lower() in entry
        ]
        known = {each["name"] for entry in found for each in entry.get("parameters", ()) if each["in"] == "query"}
        if not found or not {name for name, _ in parse_qsl(parts.query)} <= known:
            problems.append(f"{place}: {method} {url}")
    assert problems == []
