"""Looks at the settings, and at the variables of this machine's network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toolscript.app.access import check_environment
from toolscript.app.engines import open_language_model
from toolscript.app.inspection import list_network_variables, names_certificates
from toolscript.domain.errors import Invalid
from toolscript.settings import Settings, find_unknown_variables, load_settings
from toolscript.surfaces.cli.commands.gateway import check_address
from toolscript.surfaces.cli.doctor.findings import DoctorFinding, Level


def read_settings_with_findings(flags: Mapping[str, Any]) -> tuple[Settings, list[DoctorFinding]]:
    """The settings, with the defaults in place of values that are invalid, and what is wrong with them."""
    findings = []
    variables, flags = dict(os.environ), dict(flags)
    while True:
        try:
            settings = load_settings(variables=variables, **flags)
            break
        except Invalid as error:
            findings.append(DoctorFinding("settings", Level.ERROR, error.message))
            wrong = str(error.details["field"])
            if wrong in variables:
                del variables[wrong]
            else:
                flags = {}
    try:
        settings.data.absolute()  # its home folder may be that of an unknown user
    except Invalid as error:
        findings.append(DoctorFinding("settings", Level.ERROR, error.message))
        settings = Settings()
    return settings, [*findings, *_inspect(settings)]


def _inspect(settings: Settings) -> Iterator[DoctorFinding]:
    for variable, nearest in find_unknown_variables(os.environ).items():
        action = f"did you mean {nearest}?" if nearest else "unset it: no setting has that name"
        yield DoctorFinding("settings", Level.NOTE, "unknown, and ignored", action, subject=variable)
    for check in (check_environment, check_address, open_language_model):
        try:
            check(settings)
        except Invalid as error:
            yield DoctorFinding("settings", Level.ERROR, error.message)


def inspect_network() -> Iterator[DoctorFinding]:
    """Looks at proxies and certificates. Passwords are not shown."""
    variables = list_network_variables(os.environ)
    for name, value in variables.items():
        paths = value.split(os.pathsep) if name.upper() == "SSL_CERT_DIR" else [value]
        if names_certificates(name) and not any(Path(path).exists() for path in paths):
            action = "correct it or unset it: programs that use it trust no certificate, or refuse to start"
            yield DoctorFinding("network", Level.ERROR, f"{value} does not exist", action, subject=name)
            continue
        other = variables.get(name.lower()) if name.isupper() else None
        if other is not None and other != value:
            action = "give both the same value: programs differ in which of them they use"
            text = f"{_hide_login(value)}, and {name.lower()} is {_hide_login(other)}"
            yield DoctorFinding("network", Level.NOTE, text, action, subject=name)
            continue
        yield DoctorFinding("network", Level.OK, _hide_login(value), subject=name)
    if not variables:
        yield DoctorFinding("network", Level.OK, "no proxy and no certificates in the environment")


def _hide_login(value: str) -> str:
    """The value without the user and the password of an address. A password may have characters that end a host."""
    return re.sub(r"(?is)^([a-z][a-z0-9+.-]*://)?.*@", r"\1***@", value)
