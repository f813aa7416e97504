"""Guides that cannot lie: every command in them is one that the command line takes, every variable a setting."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from docs.generate import ROOT
from toolscript.settings import PREFIX, Settings, get_variable
from toolscript.surfaces.cli.main import run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
VARIABLES = {get_variable(each.name) for each in fields(Settings)}


def _commands() -> Iterator[str]:
    for page in PAGES:
        for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.splitlines() if language in {"", "text"} else ():
                command = re.sub(rf"^({PREFIX}\w+=\S+ )*", "", line)
                if command.startswith("toolscript "):
                    yield command


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(_commands())))
def test_a_command_of_a_guide_is_one_that_there_is(command: str) -> None:
    words = shlex.split(command, comments=True)[1:]
    words = words[: words.index(">")] if ">" in words else words
    if words == ["--version"]:
        return
    found: click.Command = run
    while isinstance(found, click.Group):
        _, resolved, words = found.resolve_command(click.Context(found), words)
        assert resolved is not None
        found = resolved
    # A command keeps the help option of its first context: without the parent, later tests would miss `-h`.
    parent = click.Context(run, **run.context_settings)
    found.make_context(command, words, parent=parent).close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_variable_of_a_guide_is_a_setting(page: Path) -> None:
    named = re.findall(rf"{PREFIX}[A-Z_]+[A-Z]", page.read_text(encoding="utf-8"))
    assert set(named) - VARIABLES == set()
