"""`toolscript suggest`: what its help says, and what runs where its arguments need an explanation. The process that a
hook starts does not import this: see `toolscript.pipe.suggest`."""

from __future__ import annotations

import os
import sys

import click

from toolscript.pipe import suggest as pipe
from toolscript.pipe.place import Options
from toolscript.settings import get_variable
from toolscript.surfaces.cli.terminal import options


@click.command()
@options.config
@options.data_dir
@options.overrides("profile", "--profile", metavar="NAME")
def suggest() -> None:
    """Name the tools that fit a prompt, for a hook of a client.

    Reads a prompt from standard input: plain text, or the JSON that Claude Code gives to a UserPromptSubmit hook.
    Prints one line with at most three tools if a search is sure of them, and nothing otherwise. Asks the gateway that
    runs on the data folder; without one it prints nothing. `toolscript setup --hooks` installs it.

    \b
    echo "what time is it in Lisbon" | toolscript suggest
    """
    given = {get_variable(name): value for name, value in options.get_overrides().items() if value is not None}
    prompt = pipe.read_prompt(sys.stdin.buffer.read(pipe.MAX_PROMPT_BYTES))
    answer = pipe.ask_gateway(Options({**os.environ, **given}), prompt) if prompt else ""
    if text := pipe.build_suggestion(answer):
        click.echo(text)
