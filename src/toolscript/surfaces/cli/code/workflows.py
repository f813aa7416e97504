"""`toolscript workflows`: programs that are saved under a name and are tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.programs import MAX_VERSION
from toolscript.surfaces.cli.client.catalogue import choose_catalogue, connect_servers
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, request_once, run_in_session
from toolscript.surfaces.cli.code.run import ENDINGS
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import format_count, format_json, print_answer, print_note, print_text

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.services.code.host import RunCaller

PATH = "/api/v1/workflows"
# A test may take a minute, and a workflow may have many.
TIMEOUT_SECONDS = 600.0
EXIT_FAILED = 5

Answer = Mapping[str, Any]

name_argument = click.argument("name")
version_option = click.option(
    "--version", type=click.IntRange(1, MAX_VERSION), metavar="NUMBER", help="An older version."
)


@click.group(invoke_without_command=True)
@options.catalogue
@click.pass_context
def workflows(context: click.Context) -> None:
    """Save programs as tools. Without a command, lists them.

    A workflow is a program of `toolscript run` with a name, a description and parameters. It is a tool of the server
    `workflows`: searches find it, and it is called as any other tool. Its program finds the arguments in `params`.
    Off until programs can be run: `pip install 'toolscript[code-python]'` and TOOLSCRIPT_CODE=python, or
    `code-typescript` and TOOLSCRIPT_CODE=typescript, where the gateway runs.

    \b
    toolscript workflows save open_issues issues.ts --description "Counts the open issues of a repository."
    toolscript call workflows__open_issues '{"repository": "toolscript"}'
    toolscript workflows test
    """
    if context.invoked_subcommand is None:
        _list()


@workflows.command("list")
@options.catalogue
def list_() -> None:
    """List the workflows."""
    _list()


@workflows.command()
@name_argument
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--description", metavar="TEXT", help="What the workflow does: searches find it by this.")
@click.option(
    "--parameters", type=click.Path(path_type=Path), metavar="FILE", help="The JSON Schema of its arguments, an object."
)
@click.option(
    "--result", type=click.Path(path_type=Path), metavar="FILE", help="The JSON Schema of what the program returns."
)
@click.option(
    "--tests",
    "cases",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='A JSON list of tests: [{"arguments": {…}, "expected": …}].',
)
@options.catalogue
def save(
    name: str, file: Path, description: str | None, parameters: Path | None, result: Path | None, cases: Path | None
) -> None:
    """Save a program as a workflow, or as the next version of one.

    FILE ends in .py or .ts. What is not given stays as it is in the version before.

    \b
    toolscript workflows save open_issues issues.ts --description "Counts the open issues of a repository." \\
        --parameters parameters.json --tests tests.json
    """
    language = ENDINGS.get(file.suffix)
    if language is None:
        raise Invalid(f"the language of {file} is not known: its name must end in {' or '.join(ENDINGS)}")
    given = {"language": language.value, "source": _read(file), "description": description}
    given |= {"parameters": _read_json(parameters), "result": _read_json(result), "cases": _read_json(cases)}

    async def request(session: CommandSession) -> Answer:
        body = {key: value for key, value in given.items() if value is not None}
        existing = await _find_existing(session, name)
        if existing is None and description is None:
            raise Invalid(f"{name} is new: say with --description what it does", details={"field": "--description"})
        kept = ("description", "parameters", "result", "cases")
        body = {key: existing[key] for key in kept if existing} | body

        async def local(app: App) -> Answer:
            from toolscript.surfaces.json.workflows import build_saved_response, parse_workflow

            _require_own_server(app)
            saved = await app.code.workflows.save(parse_workflow(name, body), _build_owner())
            return build_saved_response(saved)

        answer: Answer = await session.request(
            _locate(name), local, method="PUT", body=body, timeout_seconds=TIMEOUT_SECONDS
        )
        return answer

    print_answer(run_in_session(read_settings(), request), _show_saved)


@workflows.command()
@name_argument
@version_option
@options.catalogue
def show(name: str, version: int | None) -> None:
    """Print a workflow's program; with --json all of it."""

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.workflows import build_workflow_response

        return build_workflow_response(await app.code.workflows.get(name, version))

    request_once(_locate(name), local, show=lambda answer: print_text(answer["source"]), version=version)


@workflows.command()
@name_argument
@options.catalogue
def versions(name: str) -> None:
    """List the versions of a workflow, the newest first."""

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.workflows import build_workflows_response

        return build_workflows_response(await app.code.workflows.list_versions(name))

    request_once(f"{_locate(name)}/versions", local, show=_show_list)


@workflows.command()
@name_argument
@click.argument("version", type=click.IntRange(1, MAX_VERSION))
@options.catalogue
def restore(name: str, version: int) -> None:
    """Save an older version of a workflow as the newest one."""

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.workflows import build_saved_response

        _require_own_server(app)
        return build_saved_response(await app.code.workflows.restore(name, version, _build_owner()))

    body = {"version": version}
    request_once(f"{_locate(name)}/restore", local, show=_show_saved, body=body, timeout_seconds=TIMEOUT_SECONDS)


@workflows.command()
@name_argument
@options.catalogue
def remove(name: str) -> None:
    """Remove a workflow with all its versions."""

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.workflows import build_workflows_response

        _require_own_server(app)
        await app.code.workflows.remove(name)
        return build_workflows_response(await app.code.workflows.list_all())

    request_once(_locate(name), local, show=lambda _: click.echo(f"Removed {name}."), method="DELETE")


@workflows.command("test")
@click.argument("name", required=False)
@version_option
@options.catalogue
def run_tests(name: str | None, version: int | None) -> None:
    """Run the tests of a workflow, or of all. They call real tools.

    Exits with 5 when a test fails.
    """
    if version and not name:
        raise Invalid("--version needs the NAME of a workflow", details={"field": "--version"})

    async def request(session: CommandSession) -> Answer:
        names = [name] if name else [each["name"] for each in (await _list_in(session))["workflows"]]
        if session.app and not session.app.gateway.statuses:
            choice = choose_catalogue(session.settings)
            servers, stopped = choice.configuration.servers, choice.record.stopped
            await connect_servers(session.app.gateway, servers, stopped=stopped)
        return {"workflows": [await _test_in(session, each, version) for each in names]}

    answer = run_in_session(read_settings(), request)
    print_answer(answer, _show_tests)
    if any(each["failed"] for each in answer["workflows"]):
        sys.exit(EXIT_FAILED)


async def _test_in(session: CommandSession, name: str, version: int | None) -> Answer:
    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.workflows import build_test_response

        workflow = await app.code.workflows.get(name, version)
        return build_test_response(workflow, await app.code.workflows.test(workflow, _build_owner()))

    answer: Answer = await session.request(
        f"{_locate(name)}/test", local, method="POST", timeout_seconds=TIMEOUT_SECONDS, version=version
    )
    return answer


async def _list_in(session: CommandSession) -> Answer:
    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.workflows import build_workflows_response

        return build_workflows_response(await app.code.workflows.list_all())

    answer: Answer = await session.request(PATH, local)
    return answer


async def _find_existing(session: CommandSession, name: str) -> Answer | None:
    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.workflows import build_workflow_response

        return build_workflow_response(await app.code.workflows.get(name))

    try:
        answer: Answer = await session.request(_locate(name), local)
    except NotFound:
        return None
    return answer


def _list() -> None:
    print_answer(run_in_session(read_settings(), _list_in), _show_list)


def _locate(name: str) -> str:
    return f"{PATH}/{quote(name, safe='', errors='replace')}"


def _require_own_server(app: App) -> None:
    """Without a gateway, its servers are those of the configuration. Raises Conflict."""
    from toolscript.services.code.workflows import require_own_server

    require_own_server(choose_catalogue(app.settings).configuration.servers)


def _build_owner() -> RunCaller:
    from toolscript.domain.servers import CallRelay
    from toolscript.services.code.host import RunCaller
    from toolscript.surfaces.callers import OWNER

    return RunCaller(OWNER, CallRelay(user=""), may_search=True)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read {file}: {error}", details={"field": str(file)}) from error


def _read_json(file: Path | None) -> Any:
    if file is None:
        return None
    try:
        return json.loads(_read(file))
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{file} is not valid JSON: {error}", details={"field": str(file)}) from error


def _show_list(answer: Answer) -> None:
    columns: Columns = {
        "Name": "name",
        "Version": "version",
        "Language": "language",
        "Tests": "tests",
        "Saved": lambda each: each["saved_at"][:16].replace("T", " "),
        "By": "saved_by",
        "Description": "description",
    }
    print_table(columns, answer["workflows"], "There are no workflows: `toolscript workflows save` saves one.")


def _show_saved(answer: Answer) -> None:
    done = "Saved" if answer["is_new_version"] else "Unchanged:"
    click.echo(f"{done} version {answer['version']} of {answer['name']}: the tool {answer['tool_id']}.")
    if answer["quarantined"]:
        print_note(f"{answer['quarantined']}: `toolscript quarantine` shows it", label="quarantined:")


def _show_tests(answer: Answer) -> None:
    for workflow in answer["workflows"]:
        passed = f"{format_count(workflow['passed'], 'test')} passed" if workflow["results"] else "it has no tests"
        click.echo(f"{workflow['name']}, version {workflow['version']}: {passed}")
        for result in workflow["results"]:
            if not result["passed"]:
                print_note(f"{format_json(result['arguments'])}: {result['message']}", label="failed:")
    if not answer["workflows"]:
        click.echo("There are no workflows.")
