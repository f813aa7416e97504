"""`toolscript gateway status` and `stop`: the gateway that runs already."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from toolscript.domain.errors import Forbidden, NotFound, ToolscriptError, Unavailable
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.announcement import Announcement, format_time, is_alive
from toolscript.surfaces.cli.client.gateway import find_running_gateway, is_gateway_running, send_to_gateway
from toolscript.surfaces.cli.client.session import read_settings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.tables import print_table
from toolscript.surfaces.cli.terminal.text import print_answer

# A gateway finishes the requests in progress, stops its servers and closes its files.
STOP_TIMEOUT_SECONDS = 30.0
PAUSE_SECONDS = 0.05
NOT_READY, NOT_RUNNING = 3, 4

Answer = Mapping[str, Any]


@click.command()
@options.store
def status() -> None:
    """Show the gateway that runs on the data folder: its address, process, and whether it is ready.

    Exits with 0 when it is ready, with 3 when it runs and is not ready, and with 4 when none runs.

    \b
    toolscript gateway status
    toolscript gateway status --gateway http://search.example.com --json
    """
    settings = replace(read_settings(), config=None)  # whatever file it reads
    answer = _find_status(settings)
    print_answer(answer, lambda _: _show_status(answer, settings))
    if not answer["ready"]:
        sys.exit(NOT_READY if answer["running"] else NOT_RUNNING)


@click.command()
@options.data_dir
@options.as_json
def stop() -> None:
    """Stop the gateway that runs on the data folder, and wait until it has ended.

    Requests in progress are answered first. Exits with 4 when no gateway runs, and with 3 when it does not end within
    30 seconds. The next request of an agent with `toolscript mcp` starts another gateway.
    """
    settings = read_settings()
    running = find_running_gateway(settings)
    if running is None:
        raise NotFound(f"no gateway runs on {settings.data}", details={"folder": str(settings.data)})
    try:
        os.kill(running.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended
    except PermissionError as error:
        raise Forbidden(f"the gateway {running.describe()} belongs to another user: stop it as that user") from error
    _wait_for_end(running)
    answer = {"stopped": True, "url": running.url, "pid": running.pid}
    print_answer(answer, lambda _: click.echo(f"Stopped the gateway {running.describe()}."))


def _wait_for_end(running: Announcement) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    while is_alive(running.pid):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the gateway {running.describe()} has not ended after {STOP_TIMEOUT_SECONDS:g} seconds: end it with "
                f"`kill -KILL {running.pid}`",
                details={"url": running.url, "pid": running.pid},
            )
        time.sleep(PAUSE_SECONDS)


def _find_status(settings: Settings) -> dict[str, Any]:
    running = None if settings.gateway_url else find_running_gateway(settings)
    answer: dict[str, Any] = {
        "running": running is not None,
        "ready": False,
        "url": settings.gateway_url or (running.url if running else None),
        "pid": running.pid if running else None,
        "started_at": running.started_at if running else None,
        "config": (running.config or None) if running else None,
        "model": None,
        "servers": {},
        "reason": None,
    }
    try:
        answer["running"] = is_gateway_running(settings)
        if answer["running"]:
            readiness = send_to_gateway(settings, "/ready")
            answer |= {"ready": True, "model": readiness["model"], "servers": readiness["servers"]}
    except ToolscriptError as error:
        answer["reason"] = error.message
    return answer


def _show_status(answer: Answer, settings: Settings) -> None:
    if not answer["running"]:
        where = answer["url"] or settings.data
        click.echo(answer["reason"] or f"No gateway runs on {where}. Start one with `toolscript gateway start`.")
        return
    servers = ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in answer["servers"].items())
    rows = {
        "State": "ready" if answer["ready"] else f"not ready: {answer['reason']}",
        "Process": str(answer["pid"] or ""),
        "Since": format_time(answer["started_at"]) if answer["started_at"] else "",
        "Folder": "" if settings.gateway_url else str(settings.data),
        "Configuration": answer["config"],
        "Servers": servers,
        "Model": answer["model"],
    }
    shown = [{"name": name, "value": value} for name, value in rows.items() if value]
    print_table({"Gateway": "name", answer["url"]: "value"}, shown)
