"""`toolscript completion`: the script that makes a shell complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SETUP = {
    "bash": 'eval "$(toolscript completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(toolscript completion zsh)"   in ~/.zshrc',
    "fish": "toolscript completion fish | source   in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n".join(SETUP.values()))
@click.argument("shell", type=click.Choice(list(SETUP)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell. It completes commands, options, tools, servers and skills."""
    completion_class = get_completion_class(shell)
    if completion_class is not None:
        click.echo(completion_class(context.find_root().command, {}, "toolscript", "_TOOLSCRIPT_COMPLETE").source())
