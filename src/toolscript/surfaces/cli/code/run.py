"""`toolscript run`: a program that calls tools, from the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.errors import Invalid
from toolscript.domain.programs import Language, RunEnd
from toolscript.surfaces.cli.client.catalogue import choose_catalogue, connect_servers
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, run_in_session
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import format_json, print_answer, print_note, print_text
from toolscript.surfaces.cli.terminal.values import parse_pairs

if TYPE_CHECKING:
    from toolscript.app.app import App

PATH = "/api/v1/run"
ENDINGS = {".py": Language.PYTHON, ".ts": Language.TYPESCRIPT}
EXIT_REJECTED, EXIT_FAILED = 2, 5


@click.command("run")
@click.argument("file")
@click.option(
    "--language",
    type=click.Choice([each.value for each in Language]),
    help="Language of the program; default: by FILE's ending, .py or .ts; of standard input the first of "
    "TOOLSCRIPT_CODE.",
)
@click.option("--session", metavar="NAME", help="Keep results of `save_result` for later runs, for an hour.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    help="seconds, cpu_seconds, memory_mb, calls or output_bytes; repeatable.",
)
@click.option("--check", "check_only", is_flag=True, help="Only check the program, and do not run it.")
@click.option(
    "--max-tokens",
    type=click.IntRange(100, 900_000),
    metavar="NUMBER",
    help="Cut a larger value, of four bytes a token; `toolscript results` reads the whole.",
)
@options.catalogue
def run_program(
    file: str,
    language: str | None,
    session: str | None,
    limits: tuple[str, ...],
    check_only: bool,
    max_tokens: int | None,
) -> None:
    """Run a program that calls tools, and print what it prints and returns.

    FILE is a Python or TypeScript program, or `-` for standard input. `await tools.SERVER.NAME({…})` calls a tool; the
    program is checked against the types of the tools that it names before it runs. Off until it is enabled where the
    gateway runs: `pip install 'toolscript[code-python]'` and TOOLSCRIPT_CODE=python, or `code-typescript` and
    TOOLSCRIPT_CODE=typescript; `GET /health` says what is missing. Exits with 2 when the check finds
    problems, and with 5 when the program fails or reaches a limit.

    \b
    toolscript run report.py
    toolscript run report.py --check
    echo 'return await search_tools("read a file")' | toolscript run -
    """
    source, chosen = _read_program(file, language)
    body: dict[str, Any] = {
        "code": source,
        "language": chosen,
        "limits": parse_pairs(limits, "--limit", _parse_number),
        "session": session,
        "check_only": check_only,
    }

    async def request(command: CommandSession) -> Any:
        seconds = float(body["limits"].get("seconds", 60))
        return await command.request(
            PATH,
            lambda app: _run_here(app, body, max_tokens),
            body=body,
            max_tokens=max_tokens,
            waits=False,
            timeout_seconds=seconds + 30,
        )

    answer = run_in_session(read_settings(), request)
    print_answer(answer, _show)
    if answer["end"] != RunEnd.DONE:
        sys.exit(EXIT_REJECTED if answer["end"] == RunEnd.REJECTED else EXIT_FAILED)


def _read_program(file: str, language: str | None) -> tuple[str, str | None]:
    """The program, and its language if that is known. Raises Invalid."""
    chosen = language or ENDINGS.get(Path(file).suffix)
    if chosen is None and file != "-":
        raise Invalid(
            f"the language of {file} is not known: name it with --language, or let the file end in "
            f"{' or '.join(ENDINGS)}",
            details={"field": "--language"},
        )
    try:
        return (sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")), chosen
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read {file}: {error}", details={"field": "FILE"}) from error


def _parse_number(text: str) -> float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise Invalid(f"--limit: not a number: {text}", details={"field": "--limit"}) from None


async def _run_here(app: App, body: Mapping[str, Any], max_tokens: int | None) -> Mapping[str, Any]:
    """Runs the program in this process, with the servers of the tools that it names."""
    from toolscript.domain.servers import CallRelay, ServerStart
    from toolscript.services.code.host import RunCaller
    from toolscript.services.code.run import RunRequest, parse_limits
    from toolscript.surfaces.callers import OWNER
    from toolscript.surfaces.json.code import build_run_response, cut_value

    language = Language(body["language"]) if body["language"] else app.code.default_language
    limits, session, check_only = parse_limits(body["limits"], app.code.max_limits), body["session"], body["check_only"]
    request = RunRequest(body["code"], language, limits, session, checks_only=check_only)
    if not check_only:
        wanted = await app.code.workflows.list_servers(language, request.source)
        choice = choose_catalogue(app.settings)
        configured, stopped = choice.configuration.servers, choice.record.stopped
        specs = [replace(s, start=ServerStart.EAGER, idle_minutes=0) for s in configured if s.name in wanted]
        if specs and not app.servers.gateway.statuses:
            await connect_servers(app.servers.gateway, specs, among=configured, stopped=stopped)
    report = await app.code.run_code.run(request, RunCaller(OWNER, CallRelay(user=""), may_search=True))
    response = build_run_response(report)
    return await cut_value(app, response, "", max_tokens) if max_tokens is not None else response


def _show(answer: Mapping[str, Any]) -> None:
    if answer["printed"]:
        print_text(answer["printed"].removesuffix("\n"))
    if answer["end"] == RunEnd.DONE:
        if answer["value"] is not None:
            click.echo(format_json(answer["value"], indent=2))
        return
    for problem in answer["problems"]:
        print_note(f"line {problem['line']}: {problem['message']}", label="rejected")
        for signature in problem["signatures"]:
            print_note(signature, label="expected")
    if not answer["problems"]:
        where = f"line {answer['line']}: " if answer["line"] else ""
        print_note(f"{where}{answer['message']}", label=f"{answer['end']}:")
    for call in answer["calls"]:
        print_note(f"{call['function']}: {call['outcome']}, {call['ms']} ms", label="called")
