"""Help of a command with subcommands: every subcommand with one whole sentence. click cuts the sentence to one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

# Above the length of any first sentence: the formatter wraps it.
MAX_SENTENCE_LENGTH = 1_000


class CommandGroup(click.Group):
    """Lists its subcommands in sections, with the first sentence of each subcommand's help."""

    def list_sections(self, ctx: click.Context) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Returns the names and sentences of the subcommands by the title of their section."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(MAX_SENTENCE_LENGTH))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        return {"Commands": rows}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = self.list_sections(ctx)
        width = max((len(name) for rows in sections.values() for name, _ in rows), default=0)
        for title, rows in sections.items():
            with formatter.section(title):
                # Names as wide as the widest of all sections: the sentences of all sections begin in one column.
                formatter.write_dl([(name.ljust(width), sentence) for name, sentence in rows])
