"""`toolscript open`: the console of a gateway in the browser."""

from __future__ import annotations

import webbrowser
from dataclasses import replace

import click

from toolscript.domain.errors import Unavailable
from toolscript.surfaces.cli.client.gateway import find_running_gateway
from toolscript.surfaces.cli.client.redirect import has_display
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import print_answer


@click.command(name="open")
@options.store
def open_console() -> None:
    """Open the console of the running gateway in the browser.

    Without a browser, prints the address. The link signs you in as the owner of the data folder, once and within five
    minutes, whatever key the gateway asks for. A link to another gateway (--gateway) does not sign you in.

    Exits with 3 when no gateway runs.
    """
    settings = replace(read_settings(), config=None)  # whatever file it reads
    running = None if settings.gateway_url else find_running_gateway(settings)
    if running is None and not settings.gateway_url:
        raise Unavailable(
            f"no gateway runs on {settings.data}: start one with `toolscript gateway start`",
            details={"folder": str(settings.data)},
        )
    url = f"{settings.gateway_url or (running.url if running else '')}".rstrip("/") + "/"
    if running and running.key:
        from toolscript.app.access import create_sign_in_code

        url += f"#/sign-in?code={create_sign_in_code(running.key)}"
    is_opened = has_display() and webbrowser.open(url)
    text = f"Your browser opens {url}" if is_opened else f"Open this address in a browser: {url}"
    print_answer({"url": url, "opened": is_opened}, lambda _: click.echo(text))
