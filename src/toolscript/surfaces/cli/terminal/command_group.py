"""Commands with subcommands: their help has one whole sentence for each, where click cuts the sentence to one line."""

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


class ListingGroup(CommandGroup):
    """Runs its subcommand `list` when no subcommand is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_named = bool(args) and (args[0] in ctx.help_option_names or not args[0].startswith("-"))
        return super().parse_args(ctx, args if is_named or ctx.resilient_parsing else ["list", *args])
