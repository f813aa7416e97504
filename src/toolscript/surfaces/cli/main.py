"""The `toolscript` command: its subcommands, its exit codes, and how it says that something is wrong."""

from __future__ import annotations

import errno
import json
import logging
import sys
from typing import Any

import click

from toolscript import __version__
from toolscript.domain.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    TimedOut,
    ToolscriptError,
    Unauthorized,
    Unavailable,
    UpstreamFailed,
)
from toolscript.surfaces.cli.commands.completion import completion
from toolscript.surfaces.cli.commands.documents import documents
from toolscript.surfaces.cli.commands.evaluate import evaluate
from toolscript.surfaces.cli.commands.gateway import gateway
from toolscript.surfaces.cli.commands.index import index
from toolscript.surfaces.cli.commands.ingest import ingest
from toolscript.surfaces.cli.commands.knowledge import knowledge
from toolscript.surfaces.cli.commands.mcp import mcp
from toolscript.surfaces.cli.commands.search import search
from toolscript.surfaces.cli.commands.skills import skills
from toolscript.surfaces.cli.commands.sync import sync
from toolscript.surfaces.cli.commands.tools import call, get_types, list_servers, list_tools
from toolscript.surfaces.cli.terminal.text import printable

EXIT_CODES: dict[type[ToolscriptError], int] = {
    Invalid: 2,
    Unavailable: 3,
    RateLimited: 3,
    NotFound: 4,
    UpstreamFailed: 5,
    TimedOut: 5,
    Unauthorized: 6,
    Forbidden: 6,
    Conflict: 7,
}
INTERRUPTED = 130
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

log = logging.getLogger(__name__)


class _Toolscript(click.Group):
    """Says an error as one clear message and ends with its exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ToolscriptError as error:
            sys.exit(_say(error))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click knows what to do, also when whoever reads has seen enough
        except Exception as error:  # the last resort: told without a stack trace
            log.debug("unexpected", exc_info=error)
            sys.exit(_say(_understood(error)))


def _understood(error: Exception) -> ToolscriptError:
    """What an error that nobody expected means: there is no room to write, on standard output or wherever else, or it
    is a fault of ours."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        where = f" to {error.filename}" if error.filename else ""
        return Unavailable(
            f"no more can be written{where} ({error.strerror}): make room, or write somewhere else",
            details={"path": error.filename} if error.filename else {},
        )
    return ToolscriptError(
        f"{type(error).__name__}: {error}. This is a fault of ours; TOOLSCRIPT_LOG_LEVEL=debug tells more"
    )


def _say(error: ToolscriptError) -> int:
    if "--json" in sys.argv:
        click.echo(json.dumps(error.to_envelope(), ensure_ascii=False), err=True)
    else:
        told = "\n".join(map(printable, error.message.splitlines()))
        click.echo(click.style("error: ", fg="red", bold=True) + told, err=True)
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)


@click.group(
    cls=_Toolscript,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done, 1 a fault of ours, 2 wrong input or setting, 3 something needed is not available, "
    "4 not found, 5 a tool failed or took too long, 6 not allowed, 7 it is there or decided already, 130 interrupted.",
)
@click.version_option(__version__, message="%(version)s")
def run() -> None:
    """One search engine for everything an agent needs to find."""


for command in (search, list_tools, get_types, call, list_servers, gateway, mcp, sync, skills, ingest, documents):
    run.add_command(command)
for command in (knowledge, index, evaluate, completion):
    run.add_command(command)
