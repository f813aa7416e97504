"""`toolscript completion`: what makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

HOW = {
    "bash": 'eval "$(toolscript completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(toolscript completion zsh)"   in ~/.zshrc',
    "fish": "toolscript completion fish | source   in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(HOW.values()))
@click.argument("shell", type=click.Choice(list(HOW)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete toolscript's commands and options."""
    made = get_completion_class(shell)
    if made is not None:
        click.echo(made(context.find_root().command, {}, "toolscript", "_TOOLSCRIPT_COMPLETE").source())
