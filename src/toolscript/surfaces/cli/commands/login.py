"""`toolscript login` and `logout`: logins at servers that require them.

They write to the store directly: gateways that run on it follow within seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from toolscript.domain.errors import Invalid, NotFound
from toolscript.domain.spelling import find_nearest
from toolscript.surfaces.cli.client.catalogue import choose_catalogue
from toolscript.surfaces.cli.client.completion import complete
from toolscript.surfaces.cli.client.redirect import receive_redirect
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import print_answer, print_note

if TYPE_CHECKING:
    from toolscript.domain.logins import Login
    from toolscript.domain.servers import ServerSpec
    from toolscript.settings import Settings

Answer = Mapping[str, Any]
_user = click.option(
    "--user",
    default="",
    metavar="NAME",
    help="Whose login, at a server with oauth.perUser: the name of a key, or the caller that log lines name.",
)


@click.command()
@click.argument("server", shell_complete=complete("servers"))
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening it.")
@click.option("--scope", "scopes", multiple=True, help="A scope beside those that the server asks for; repeatable.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Loopback port that the browser is sent back to. Default: oauth.redirectPort of the server, or a free one.",
)
@click.option(
    "--timeout", type=click.FloatRange(1, 3600), default=300.0, show_default=True, help="Seconds to wait for the login."
)
@_user
@options.config
@options.data_dir
@options.as_json
def login(server: str, no_browser: bool, scopes: tuple[str, ...], port: int | None, timeout: float, user: str) -> None:
    """Log in at a server that requires it (OAuth).

    Opens the address of its authorization server in your browser, waits until you have logged in there, and stores the
    tokens, encrypted. A gateway that runs on the same store connects to the server within seconds, and renews the
    tokens from then on. On a machine without a browser, open the address elsewhere, and paste the address that the
    browser ends at (it begins with http://127.0.0.1) into the terminal.

    \b
    toolscript login github
    toolscript login github --no-browser --scope repo
    """
    settings, spec = _find_server(server, user)
    stored = asyncio.run(_log_in(settings, spec, scopes, port, timeout, opens_browser=not no_browser))
    print_answer(_build_login_response(spec, stored), _show_login)


@click.command()
@click.argument("server", shell_complete=complete("servers"))
@_user
@options.config
@options.data_dir
@options.as_json
def logout(server: str, user: str) -> None:
    """Forget the login at a server.

    Its tokens are revoked where the authorization server offers that. Gateways on the same store stop using them within
    seconds. Exits with 6 when there is no login.
    """
    settings, spec = _find_server(server, user)
    answer = {"server": spec.name, "revoked": asyncio.run(_log_out(settings, spec))}
    print_answer(answer, _show_logout)


def _find_server(name: str, user: str) -> tuple[Settings, ServerSpec]:
    """The settings, and the server of that name in the configuration, for that user. Raises NotFound, and Invalid for a
    user of a server that has one login for all."""
    choice = choose_catalogue(read_settings())
    specs = {spec.name: spec for spec in choice.configuration.servers}
    if name not in specs:
        nearest = find_nearest(name, [*specs])
        hint = f'did you mean "{nearest}"?' if nearest else f"configured are {', '.join(specs) or 'none'}"
        raise NotFound(f"no such server: {name}: {hint}", details={"server": name, "allowed": [*specs]})
    spec = specs[name]
    if user and not spec.oauth.per_user:
        raise Invalid(
            f"server {name} has one login for all users: leave --user out, or set oauth.perUser of the server",
            details={"server": name, "field": "--user"},
        )
    return choice.settings, replace(spec, user=user)


async def _log_in(
    settings: Settings,
    spec: ServerSpec,
    scopes: tuple[str, ...],
    port: int | None,
    timeout: float,  # noqa: ASYNC109
    *,
    opens_browser: bool,
) -> Login:
    from toolscript.app.logins import open_logins  # --help must not wait for engines to load
    from toolscript.app.observability import open_server_changes
    from toolscript.services.support.server_changes import describe_login

    redirect_port = port or spec.oauth.redirect_port
    async with (
        open_logins(settings) as logins,
        open_server_changes(settings) as changes,
        receive_redirect(redirect_port, opens_browser=opens_browser, timeout=timeout) as browser,
    ):
        with changes.record("log in", spec.name, describe_login(spec.user)):
            return await logins.log_in(spec, browser, scopes)


async def _log_out(settings: Settings, spec: ServerSpec) -> bool:
    from toolscript.app.logins import open_logins  # --help must not wait for engines to load
    from toolscript.app.observability import open_server_changes
    from toolscript.services.support.server_changes import describe_login

    async with open_logins(settings) as logins, open_server_changes(settings) as changes:
        with changes.record("log out", spec.name, describe_login(spec.user)):
            return await logins.log_out(spec)


def _build_login_response(spec: ServerSpec, login: Login) -> dict[str, Any]:
    expires = login.expires_at
    return {
        "server": spec.name,
        "issuer": login.issuer,
        "scopes": login.scope.split(),
        "expiresAt": None if expires is None else datetime.fromtimestamp(expires, UTC).isoformat(timespec="seconds"),
        "renewable": login.refresh_token is not None,
    }


def _show_login(answer: Answer) -> None:
    click.echo(f"Logged in at {answer['server']} ({answer['issuer']}).")
    if not answer["renewable"]:
        until = f"until {answer['expiresAt']}" if answer["expiresAt"] else "until it is revoked"
        print_note(f"the login is valid {until}: the authorization server issues no refresh token")


def _show_logout(answer: Answer) -> None:
    revoked = "and revoked its tokens" if answer["revoked"] else "; its tokens were not revoked"
    click.echo(f"Logged out at {answer['server']} {revoked}.".replace(" ;", ";"))
