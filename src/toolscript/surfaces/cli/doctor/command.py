"""`toolscript doctor`: what is wrong with this installation, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

import click

from toolscript.domain.errors import ToolscriptError
from toolscript.settings import Settings
from toolscript.surfaces.cli.doctor.clients import inspect_clients
from toolscript.surfaces.cli.doctor.data_folder import inspect_folder
from toolscript.surfaces.cli.doctor.findings import DoctorFinding, Level, build_doctor_response, show_findings
from toolscript.surfaces.cli.doctor.gateway import inspect_gateway, is_gateway_usable
from toolscript.surfaces.cli.doctor.installation import inspect_index, inspect_model, inspect_package
from toolscript.surfaces.cli.doctor.servers import inspect_configuration, inspect_servers
from toolscript.surfaces.cli.doctor.settings import inspect_network, read_settings_with_findings
from toolscript.surfaces.cli.terminal import options
from toolscript.surfaces.cli.terminal.text import print_answer
from toolscript.surfaces.logs import configure_logging

SOMETHING_WRONG = 3


@click.command()
@click.option("--no-start", is_flag=True, help="Where no gateway runs, do not start the servers.")
@options.catalogue
def doctor(no_start: bool) -> None:
    """Find out what is wrong, and what to do about it.

    Looks at the settings, the package, the data folder, the index engine, the model, the gateway, the configuration and
    its servers, the clients, and proxies and certificates. It changes nothing, downloads no model and starts no
    gateway.

    The states of servers come from the gateway that runs. Where none runs, each server is started once and ended again,
    as `toolscript list-servers` does; with --no-start only their commands are looked for.

    Exits with 3 when something is wrong. Notes are about what may be intended.

    \b
    toolscript doctor
    toolscript doctor --no-start --json
    """
    configure_logging("error")
    findings = list(_inspect_all(starts=not no_start))
    response = build_doctor_response(findings)
    print_answer(response, lambda _: show_findings(findings))
    if not response["ok"]:
        sys.exit(SOMETHING_WRONG)


def _inspect_all(*, starts: bool) -> Iterator[DoctorFinding]:
    settings, findings = read_settings_with_findings(options.get_overrides())
    yield from findings or [DoctorFinding("settings", Level.OK, "no variable is unknown or invalid")]
    yield from _guard("package", inspect_package)
    yield from _guard("folder", lambda: inspect_folder(settings))
    yield from _guard("index", lambda: inspect_index(settings))
    yield from _guard("model", lambda: inspect_model(settings))
    yield from _guard("gateway", lambda: inspect_gateway(settings))
    yield from _guard("servers", lambda: _inspect_servers(settings, starts=starts))
    yield from _guard("clients", lambda: inspect_clients(settings))
    yield from _guard("network", inspect_network)


def _inspect_servers(settings: Settings, *, starts: bool) -> Iterator[DoctorFinding]:
    choice, findings = inspect_configuration(settings)
    yield from findings
    yield from inspect_servers(settings, choice, asks_gateway=is_gateway_usable(settings), starts=starts)


def _guard(area: str, inspect: Callable[[], Iterable[DoctorFinding]]) -> Iterator[DoctorFinding]:
    """The findings; a check that fails itself is one, and hinders no other."""
    try:
        yield from inspect()
    except Exception as error:  # noqa: BLE001  (whatever is broken is what a user wants to know)
        is_clear = isinstance(error, ToolscriptError | OSError | RuntimeError)  # the last without a home folder
        yield DoctorFinding(area, Level.ERROR, f"cannot be looked at: {error if is_clear else repr(error)}")
