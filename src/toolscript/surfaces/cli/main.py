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
# Where each command is, and the first sentence of its help, by the sections of `toolscript --help`. Only the command
# that runs is imported: all of them together take 0.3 s.
SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Find": {
        "search": ("commands.search:search", "Find the tools for a task."),
        "suggest": ("commands.suggest:suggest", "Name the tools that fit a prompt, for a hook of a client."),
        "list-tools": ("commands.tools:list_tools", "List all tools, prompts, resources and agent skills."),
        "skills": ("commands.skills:skills", "List, edit and review the skills that tools are grouped into."),
        "documents": ("commands.documents:documents", "Search, list, show and remove the documents of one tenant."),
        "knowledge": (
            "commands.knowledge:knowledge",
            "Ingest books, papers and other long texts, search in them, and cite them.",
        ),
    },
    "Call": {
        "call": ("commands.tools:call", "Call a tool and print its answer."),
        "read-agent-skill": ("commands.agent_skills:read_agent_skill", "Print an agent skill, or one of its files."),
        "run": ("code.run:run_program", "Run a program that calls tools, and print what it prints and returns."),
        "workflows": ("code.workflows:workflows", "Save programs as tools."),
        "results": ("commands.tools:results", "Read or search a result that `toolscript call --max-tokens` has cut."),
        "get-types": ("commands.tools:get_types", "Print a typed client for tools, ready to import."),
    },
    "Servers": {
        "setup": ("setup.command:setup", "Move the servers of your MCP clients behind Toolscript."),
        "mcp": ("commands.mcp:mcp", "Serve MCP on standard input and output: the only server that an agent needs."),
        "gateway": ("commands.gateway:gateway", "Serve all configured MCP servers as one."),
        "open": ("commands.open_console:open_console", "Open the console of the running gateway in the browser."),
        "servers": ("commands.servers:servers", "Add, start and stop servers, and read their logs."),
        "registry": ("commands.registry:registry", "Read registries, to find servers that are not connected."),
        "list-servers": ("commands.tools:list_servers", "Show the state of every configured server."),
        "login": ("commands.login:login", "Log in at a server that requires it (OAuth)."),
        "logout": ("commands.login:logout", "Forget the login at a server."),
    },
    "Files": {
        "ingest": ("ingest.command:ingest", "Make files and folders searchable."),
        "watch": ("ingest.watch:watch", "Keep folders in step: ingest them, then every change, until Ctrl-C."),
        "jobs": ("ingest.jobs:jobs", "Show, cancel and resume the jobs of toolscript ingest."),
    },
    "Share": {
        "keys": ("commands.keys:keys", "Create, list and revoke keys for the gateway."),
        "approvals": ("commands.approvals:approvals", "Decide about calls that wait for approval."),
        "quarantine": (
            "commands.quarantine:quarantine",
            "Review tools with definitions that changed or look like orders to the model.",
        ),
        "calls": ("commands.calls:calls", "List who called which tool, newest first."),
    },
    "Maintain": {
        "doctor": ("doctor.command:doctor", "Find out what is wrong, and what to do about it."),
        "catalogue": ("commands.catalogue:catalogue", "Find the tools that searches mistake for each other."),
        "sync": ("commands.sync:sync", "Update catalogue, skills and index to what the servers offer now."),
        "index": ("commands.index:index", "Maintain the vector index."),
        "eval": ("commands.evaluate:evaluate", "Measure search quality with judged queries."),
        "feedback": ("commands.feedback:feedback", "See, add and forget what the search has learnt from use."),
        "completion": ("commands.completion:completion", "Print the completion script for a shell."),
    },
}
COMMANDS = {name: place for commands in SECTIONS.values() for name, (place, _) in commands.items()}
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

    def list_sections(self, ctx: click.Context) -> Mapping[str, Sequence[tuple[str, str]]]:  # noqa: ARG002
        return {
            title: [(name, sentence) for name, (_, sentence) in commands.items()]
            for title, commands in SECTIONS.items()
        }

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
        if sys.platform != "win32":
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
