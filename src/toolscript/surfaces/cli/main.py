"""The `toolscript` command: its subcommands, its exit codes, and how it says that something is wrong."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from toolscript import __version__
from toolscript.domain.errors import Invalid, NotFound, ToolscriptError, Unavailable
from toolscript.surfaces.cli.evaluate import evaluate
from toolscript.surfaces.cli.gateway import gateway
from toolscript.surfaces.cli.index import index
from toolscript.surfaces.cli.search import search

EXIT_CODES: dict[type[ToolscriptError], int] = {Invalid: 2, Unavailable: 3, NotFound: 4}


class _Toolscript(click.Group):
    """Says an error of ours as one clear message and ends with its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ToolscriptError as error:
            if "--json" in sys.argv:
                click.echo(json.dumps(error.envelope(), ensure_ascii=False), err=True)
            else:
                click.echo(click.style("error: ", fg="red", bold=True) + error.message, err=True)
            sys.exit(next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1))


@click.group(
    cls=_Toolscript,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 a fault of ours, 2 wrong input or setting, 3 something needed is not available, "
    "4 not found.",
)
@click.version_option(__version__, message="%(version)s")
def run() -> None:
    """One search engine for everything an agent needs to find."""


for command in (search, gateway, index, evaluate):
    run.add_command(command)
