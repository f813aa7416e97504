"""`toolscript workflows`: programs that are saved under a name and are tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from toolscript.domain.errors import Invalid, NotFound
from toolscript.surfaces.cli.client.catalogue import choose_catalogue
from toolscript.surfaces.cli.client.session import CommandSession, read_settings, request_once, run_in_session
from toolscript.surfaces.cli.code.run import ENDINGS
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import ListingGroup
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import print_answer, print_note, print_text

if TYPE_CHECKING:
    from toolscript.app.app import App
    from toolscript.services.code.host import RunCaller

PATH = "/api/v1/workflows"
# Of the first program in a language: its sandbox and the types of its tools are loaded.
TIMEOUT_SECONDS = 600.0

Answer = Mapping[str, Any]

name_argument = click.argument("name")


@click.group(cls=ListingGroup)
def workflows() -> None:
    """Save programs as tools. Without a command, lists them.

    A workflow is a program of `toolscript run` with a name, a description and parameters. It is a tool of the server
    `workflows`: searches find it, and it is called as any other tool. Its program finds the arguments in `params`.
    Off until programs can be run: `pip install 'toolscript[code-python]'` and TOOLSCRIPT_CODE=python, or
    `code-typescript` and TOOLSCRIPT_CODE=typescript, where the gateway runs.

    \b
    toolscript workflows save open_issues issues.ts --description "Open issues"
    toolscript call workflows__open_issues '{"repository": "toolscript"}'
    """


@workflows.command("list")
@options.catalogue
def list_() -> None:
    """List the workflows."""
    print_answer(run_in_session(read_settings(), _list_in), _show_list)


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
@options.catalogue
def save(name: str, file: Path, description: str | None, parameters: Path | None, result: Path | None) -> None:
    """Save a program as a workflow, or replace a saved one.

    FILE ends in .py or .ts. What is not given stays as it is.

    \b
    toolscript workflows save open_issues issues.ts --description "Open issues" \\
        --parameters parameters.json
    """
    language = ENDINGS.get(file.suffix)
    if language is None:
        raise Invalid(f"the language of {file} is not known: its name must end in {' or '.join(ENDINGS)}")
    given = {"language": language.value, "source": _read(file), "description": description}
    given |= {"parameters": _read_json(parameters), "result": _read_json(result)}

    async def request(session: CommandSession) -> Answer:
        body = {key: value for key, value in given.items() if value is not None}
        existing = await _find_existing(session, name)
        if existing is None and description is None:
            raise Invalid(f"{name} is new: say with --description what it does", details={"field": "--description"})
        kept = ("description", "parameters", "result")
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
@options.catalogue
def show(name: str) -> None:
    """Print a workflow's program; with --json all of it."""

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.workflows import build_workflow_response

        return build_workflow_response(await app.code.workflows.get(name))

    request_once(_locate(name), local, show=lambda answer: print_text(answer["source"]))


@workflows.command()
@name_argument
@options.catalogue
def remove(name: str) -> None:
    """Remove a workflow."""

    async def local(app: App) -> Answer:
        from toolscript.surfaces.json.workflows import build_workflows_response

        _require_own_server(app)
        await app.code.workflows.remove(name)
        return build_workflows_response(await app.code.workflows.list_all())

    request_once(_locate(name), local, show=lambda _: click.echo(f"Removed {name}."), method="DELETE")


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


def _locate(name: str) -> str:
    return f"{PATH}/{quote(name, safe='', errors='replace')}"


def _require_own_server(app: App) -> None:
    """Without a gateway, its servers are the servers of the configuration. Raises Conflict."""
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
        "Language": "language",
        "Saved": lambda each: each["saved_at"][:16].replace("T", " "),
        "By": "saved_by",
        "Description": "description",
    }
    print_table(columns, answer["workflows"], "There are no workflows: `toolscript workflows save` saves one.")


def _show_saved(answer: Answer) -> None:
    click.echo(f"Saved {answer['name']}: the tool {answer['tool_id']}.")
    if answer["quarantined"]:
        print_note(f"{answer['quarantined']}: `toolscript quarantine` shows it", label="quarantined:")
