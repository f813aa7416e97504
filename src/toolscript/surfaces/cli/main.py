"""The `toolscript` command: its subcommands, exit codes and error messages."""

from __future__ import annotations

import logging
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import click

from toolscript import __version__
from toolscript.domain import errors
from toolscript.domain.errors import ToolscriptError
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.text import format_json, printable

EXIT_CODES: dict[type[ToolscriptError], int] = {
    errors.Invalid: 2,
    errors.Unavailable: 3,
    errors.RateLimited: 3,
    errors.NotFound: 4,
    errors.UpstreamFailed: 5,
    errors.TimedOut: 5,
    errors.Unauthorized: 6,
    errors.Forbidden: 6,
    errors.Quarantined: 6,
    errors.ApprovalRequired: 6,
    errors.ApprovalDeclined: 6,
    errors.Conflict: 7,
}
# Where each command is. Only the one that runs is imported, which takes 40 ms less than all of them.
COMMANDS = {
    "approvals": "commands.approvals:approvals",
    "call": "commands.tools:call",
    "calls": "commands.calls:calls",
    "completion": "commands.completion:completion",
    "documents": "commands.documents:documents",
    "eval": "commands.evaluate:evaluate",
    "feedback": "commands.feedback:feedback",
    "gateway": "commands.gateway:gateway",
    "get-types": "commands.tools:get_types",
    "index": "commands.index:index",
    "ingest": "ingest.command:ingest",
    "jobs": "ingest.jobs:jobs",
    "keys": "commands.keys:keys",
    "knowledge": "commands.knowledge:knowledge",
    "list-servers": "commands.tools:list_servers",
    "list-tools": "commands.tools:list_tools",
    "login": "commands.login:login",
    "logout": "commands.login:logout",
    "mcp": "commands.mcp:mcp",
    "open": "commands.open_console:open_console",
    "quarantine": "commands.quarantine:quarantine",
    "results": "commands.tools:results",
    "run": "code.run:run_program",
    "search": "commands.search:search",
    "servers": "commands.servers:servers",
    "setup": "setup.command:setup",
    "skills": "commands.skills:skills",
    "sync": "commands.sync:sync",
    "watch": "ingest.watch:watch",
    "workflows": "code.workflows:workflows",
}
# How `toolscript --help` lists the commands.
SECTIONS: Mapping[str, Sequence[str]] = {
    "Find": ("search", "list-tools", "skills", "documents", "knowledge"),
    "Call": ("call", "run", "workflows", "results", "get-types"),
    "Servers": ("setup", "mcp", "gateway", "open", "servers", "list-servers", "login", "logout"),
    "Files": ("ingest", "watch", "jobs"),
    "Share": ("keys", "approvals", "quarantine", "calls"),
    "Maintain": ("sync", "index", "eval", "feedback", "completion"),
}
# What `toolscript` alone prints.
FIRST_STEPS = """\
Toolscript: one search engine for everything an agent needs to find.

  toolscript setup                  Move the servers of your MCP clients behind
                                    Toolscript.
  toolscript gateway start          Connect to all servers, and serve HTTP, MCP
                                    and the console.
  toolscript search "send a mail"   Find the tools for a task.
  toolscript call TOOL              Call a tool.
  toolscript ingest FOLDER          Make files and folders searchable.

All commands: toolscript --help. One command: toolscript search --help.
"""
INTERRUPTED = 130
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2

log = logging.getLogger(__name__)


class _Toolscript(CommandGroup):
    """Imports a command when it is used; prints an error as one message and exits with its code."""

    def get_sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:  # noqa: ARG002
        return SECTIONS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(FIRST_STEPS, nl=False)
            ctx.exit()
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS.keys() | self.commands.keys())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            module, _, function = COMMANDS[cmd_name].partition(":")
            self.add_command(getattr(import_module(f"{__package__}.{module}"), function))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError for an unknown command, with what was probably meant: click knows imported commands
        only."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            from difflib import get_close_matches

            meant = " or ".join(map(repr, get_close_matches(name, self.list_commands(ctx))))
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {meant}?" if meant else ""))
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        try:
            with _end_without_reader():  # prints --help and --version
                return super().make_context(*arguments, **more)
        except OSError as error:
            _end_with(error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _end_without_reader():
                return super().invoke(ctx)
        except ToolscriptError as error:
            sys.exit(_print_error(error))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise  # click handles these
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a bug, or a panic of a library in Rust: one line instead of a stack trace
            log.debug("unexpected", exc_info=error)
            _end_with(error)


@contextmanager
def _end_without_reader() -> Iterator[None]:
    """Ends the command with success when the program that reads its output has enough, as `head` does."""
    try:
        yield
    except BrokenPipeError:
        poll = select.poll()
        for output in (STANDARD_OUTPUT, STANDARD_ERROR):
            poll.register(output, 0)
        if not poll.poll(0):
            raise  # another pipe broke
        _drop_output(STANDARD_OUTPUT, STANDARD_ERROR)
        sys.exit(0)


def _drop_output(*outputs: int) -> None:
    """Python still writes what is left when it ends, and would then end with 120."""
    for output in outputs:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)


def _end_with(error: BaseException) -> NoReturn:
    """Ends the command with an unexpected error, perhaps of writing its output."""
    code = _print_error(_explain(error))
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output(STANDARD_OUTPUT)
    sys.exit(code)


def _explain(error: BaseException) -> ToolscriptError:
    """Turns an unexpected error into a message: the disk is full, or there is a bug."""
    if isinstance(error, OSError) and errors.is_disk_full(error):
        where = f" to {error.filename}" if error.filename else ""
        return errors.Unavailable(
            f"cannot write{where}: {error.strerror}. Free some space, or write somewhere else",
            details={"path": error.filename} if error.filename else {},
        )
    return ToolscriptError(
        f"{type(error).__name__}: {error}. This is a bug in Toolscript; set TOOLSCRIPT_LOG_LEVEL=debug for details"
    )


def _print_error(error: ToolscriptError) -> int:
    if "--json" in sys.argv:
        click.echo(format_json(error.to_envelope(), err=True), err=True)
    else:
        message = "\n".join(map(printable, error.message.splitlines()))
        click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)


@click.group(
    cls=_Toolscript,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 success, 1 internal error, 2 invalid input or setting, 3 something needed is unavailable, "
    "4 not found, 5 a tool failed or timed out, 6 not allowed, 7 already exists, or already decided, 130 interrupted.",
)
@click.version_option(__version__, "-V", "--version", message="%(version)s")
def run() -> None:
    """One search engine for everything an agent needs to find."""
