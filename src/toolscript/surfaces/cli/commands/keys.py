"""`toolscript keys`: named keys for people and programs that use the gateway.

Keys are written to the store directly, not through a gateway: who can write to the store needs no key for that.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolscript.domain.access import DEFAULT_PLAN, MAX_CALLS, AccessKey, CallLimit, Scope
from toolscript.domain.errors import Invalid
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.command_group import CommandGroup
from toolscript.surfaces.cli.terminal.tables import Columns, print_table
from toolscript.surfaces.cli.terminal.text import print_answer, print_note
from toolscript.surfaces.json.access import build_key_response, build_keys_response

if TYPE_CHECKING:
    from toolscript.services.access.keys import Keys
    from toolscript.settings import Settings

Answer = Mapping[str, Any]
Result = TypeVar("Result")

_UNITS = {"m": 60, "h": 3600, "d": 86_400}
MAX_DAYS = 3650
FIRST_KEY = (
    "this is the first key: from now on gateways on this store refuse requests without one, except those of programs "
    "and pages on the gateway's own machine. `toolscript gateway start --require-key` asks them, too"
)


@click.group(cls=CommandGroup)
def keys() -> None:
    """Create, list and revoke keys for the gateway.

    A key has a name for logs, and scopes that say what it allows:

    \b
    search     find and describe tools, generate clients
    call       call tools
    documents  search, add and remove the documents of one tenant
    knowledge  search knowledge, unless TOOLSCRIPT_KNOWLEDGE_PUBLIC is true
    metrics    read /metrics
    admin      see servers, change skills, sync

    Requests send it as `X-API-Key: KEY` or `Authorization: Bearer KEY`, over HTTP and MCP. Once a key was created,
    gateways on that store refuse requests without a key, except probes, and requests of their own machine unless they
    were started with --require-key. Keys are written to the store, and gateways that run on it follow within seconds.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([scope.value for scope in Scope]),
    multiple=True,
    required=True,
    help="What the key allows; repeatable.",
)
@click.option("--expires", metavar="TIME", help="When the key expires: 45m, 12h or 30d from now. Default: never.")
@click.option(
    "--plan", default=DEFAULT_PLAN, show_default=True, help="The plan that limits requests for documents with this key."
)
@click.option("--rate", type=click.IntRange(1, MAX_CALLS), help="Maximum number of tool calls a minute. Default: any.")
@click.option("--concurrent", type=click.IntRange(1, MAX_CALLS), help="Maximum number of calls at once. Default: any.")
@options.overrides(
    "tenant", "--tenant", metavar="NAME", help="The tenant whose documents the key is for, with the scope documents."
)
@options.data_dir
@options.as_json
def create(
    name: str, scopes: tuple[str, ...], expires: str | None, plan: str, rate: int | None, concurrent: int | None
) -> None:
    """Create a key, and print its secret: it is shown only now, and stored nowhere.

    Exits with 7 when the name is taken, also by a revoked key.

    \b
    toolscript keys create ci --scope search --scope call --expires 30d
    toolscript keys create agent --scope search --rate 60 --concurrent 4
    toolscript keys create prometheus --scope metrics
    toolscript keys create acme-app --scope documents --tenant acme
    """
    settings = read_settings()
    expires_in = None if expires is None else _parse_duration(expires)

    def work(keys: Keys) -> Awaitable[tuple[AccessKey, str]]:
        return keys.create(
            name,
            [*map(Scope, scopes)],
            tenant=settings.tenant,
            plan=plan,
            expires_in=expires_in,
            limit=CallLimit(rate, concurrent),
        )

    key, secret = _run(settings, work)
    print_answer({**build_key_response(key), "key": secret}, _show_created)
    if len(_run(settings, lambda keys: keys.list_all(), read_only=True)) == 1:
        print_note(FIRST_KEY, label="note")


@keys.command("list")
@options.data_dir
@options.as_json
def list_() -> None:
    """List all keys with their scopes, without their secrets."""
    found = _run(read_settings(), lambda keys: keys.list_all(), read_only=True)
    print_answer(build_keys_response(found), _show_keys)


@keys.command()
@click.argument("name")
@options.data_dir
@options.as_json
def revoke(name: str) -> None:
    """Make a key invalid for good, on every gateway within seconds."""
    key = _run(read_settings(), lambda keys: keys.revoke(name))
    print_answer(build_key_response(key), lambda answer: click.echo(f"Revoked {answer['name']}."))


def _run(settings: Settings, work: Callable[[Keys], Awaitable[Result]], *, read_only: bool = False) -> Result:
    from toolscript.app.access import open_keys  # --help must not wait for engines to load

    async def run() -> Result:
        async with open_keys(settings, read_only=read_only) as opened:
            return await work(opened)

    return asyncio.run(run())


def _parse_duration(text: str) -> float:
    """The seconds of `30d`, `12h` or `45m`. Raises Invalid."""
    match = re.fullmatch(r"([1-9][0-9]{0,6})([mhd])", text)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds <= MAX_DAYS * _UNITS["d"]:
        raise Invalid(
            f"invalid --expires {text}: expected a number of minutes, hours or days, such as 45m, 12h or 30d, of at "
            f"most {MAX_DAYS}d",
            details={"field": "--expires"},
        )
    return float(seconds)


def _show_created(answer: Answer) -> None:
    until = f"until {answer['expires_at']}" if answer["expires_at"] else "until it is revoked"
    print_note(f"{answer['name']} is valid {until}. Keep this secret now, it is not shown again:", label="created:")
    click.echo(answer["key"])


def _format_limit(key: Answer) -> str:
    limits = {"a minute": key["calls_per_minute"], "at a time": key["concurrent_calls"]}
    return ", ".join(f"{number} {unit}" for unit, number in limits.items() if number)


def _show_keys(answer: Answer) -> None:
    columns: Columns = {
        "Name": "name",
        "Scopes": "scopes",
        "State": "state",
        "Expires": lambda key: (key["expires_at"] or "never")[:16],
        "Created": lambda key: key["created_at"][:16],
        "Tenant": "tenant",
        "Calls": _format_limit,
    }
    print_table(columns, answer["keys"], "No keys.")
