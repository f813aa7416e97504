"""Help for people in front of a terminal of 80 columns: grouped commands, whole sentences, the first steps."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from toolscript.surfaces.cli.main import COMMANDS, SECTIONS, run

pytestmark = pytest.mark.req("X-04")

WIDTH = 80
# Where the words that an option takes are longer than a line, click does not break them.
UNBREAKABLE = ("--pipeline [", "--against [")


def _render_help(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    with click.Context(command, info_name=path, terminal_width=WIDTH, **run.context_settings) as context:
        yield path, command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                subcommand = command.get_command(context, name)
                assert subcommand is not None
                # A command keeps the help option of its first context: later tests need both of its names.
                yield from _render_help(subcommand, f"{path} {name}")


def test_the_help_of_the_program_has_the_first_sentence_of_each_command() -> None:
    listed = {name: sentence for commands in SECTIONS.values() for name, (_, sentence) in commands.items()}
    assert len(listed) == sum(map(len, SECTIONS.values()))
    context = click.Context(run)
    commands = {name: run.get_command(context, name) for name in listed}
    assert listed == {name: command and command.get_short_help_str(1000) for name, command in commands.items()}


def test_the_help_of_the_program_lists_sections_with_whole_sentences() -> None:
    text = CliRunner().invoke(run, ["--help"], terminal_width=WIDTH).output
    positions = [text.index(f"\n{title}:\n") for title in SECTIONS]
    assert positions == sorted(positions)
    assert "..." not in text.replace("[ARGS]...", "")


def test_no_line_of_help_is_wider_than_a_terminal() -> None:
    wide = [
        f"{path}: {line}"
        for path, text in _render_help(run, "toolscript")
        for line in text.splitlines()
        if len(line) > WIDTH and not line.strip().startswith(UNBREAKABLE)
    ]
    assert wide == []


def test_without_arguments_the_program_shows_five_commands_and_where_all_are() -> None:
    result = CliRunner().invoke(run, [])
    assert result.exit_code == 0
    commands = [line.split()[1] for line in result.output.splitlines() if line.startswith("  toolscript ")]
    assert len(commands) == 5
    assert set(commands) <= COMMANDS.keys()
    assert "toolscript --help" in result.output
    assert max(map(len, result.output.splitlines())) <= WIDTH
