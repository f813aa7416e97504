"""Looks at the gateway that runs on the data folder, or that --gateway names, and at its port."""

from __future__ import annotations

from collections.abc import Iterator

from toolscript import __version__
from toolscript.domain.errors import ToolscriptError, Unauthorized, Unavailable
from toolscript.settings import Settings
from toolscript.surfaces.cli.client.gateway import find_running_gateway, send_to_gateway
from toolscript.surfaces.cli.client.notices import find_void_settings
from toolscript.surfaces.cli.client.port_owner import describe_port_owner
from toolscript.surfaces.cli.doctor.findings import DoctorFinding, Level

RESTART = "restart it: `toolscript gateway stop`, then `toolscript gateway start`"


def inspect_gateway(settings: Settings) -> Iterator[DoctorFinding]:
    """Looks whether a gateway runs, answers, and is of this version; and whether its port is free where none runs."""
    if settings.gateway_url:
        yield from _inspect_running(settings, settings.gateway_url)
        return
    running = find_running_gateway(settings)
    if running is None:
        yield DoctorFinding(
            "gateway", Level.OK, "none runs on the data folder: `toolscript mcp` starts one when it is needed"
        )
        yield from _inspect_port(settings)
        return
    yield from _inspect_running(settings, running.describe())
    for text in find_void_settings(settings):
        yield DoctorFinding("gateway", Level.NOTE, text)


def _inspect_running(settings: Settings, name: str) -> Iterator[DoctorFinding]:
    try:
        version = _ask_version(settings)
        if version is None:
            action = "correct --gateway or TOOLSCRIPT_GATEWAY_URL"
            yield DoctorFinding("gateway", Level.ERROR, f"{name} is not a gateway", action)
            return
        audit = send_to_gateway(settings, "/health").get("audit")
    except ToolscriptError as error:
        action = "correct --gateway or TOOLSCRIPT_GATEWAY_URL, or start it there" if settings.gateway_url else RESTART
        yield DoctorFinding("gateway", Level.ERROR, f"{name} cannot be asked: {error.message}", action)
        return
    if version != __version__:
        text = f"{name} is version {version}, and this command is {__version__}"
        yield DoctorFinding("gateway", Level.ERROR, text, RESTART, cause="version")
    if audit:
        text = f"its audit has lost {audit['lost']} events" + (", and fails now" if audit["failing"] else "")
        yield DoctorFinding("gateway", Level.ERROR, text, "free disk space, or look at its log")
    try:
        servers = send_to_gateway(settings, "/ready")["servers"]
        states = ", ".join(f"{number} {state}" for state, number in servers.items())
        yield DoctorFinding("gateway", Level.OK, f"{name} is ready; servers: {states or 'none'}")
    except ToolscriptError as error:
        needs_key = isinstance(error, Unauthorized)
        action = "set TOOLSCRIPT_API_KEY to one of its keys" if needs_key else "run this command again in a moment"
        yield DoctorFinding("gateway", Level.ERROR, f"{name} is not ready: {error.message}", action)


def _ask_version(settings: Settings) -> str | None:
    """The version of the gateway; None if what answers is not one, or nothing does. Raises ToolscriptError."""
    index = send_to_gateway(settings, "/")
    is_gateway = isinstance(index, dict) and index.get("name") == "Toolscript"
    return str(index["version"]) if is_gateway else None


def _inspect_port(settings: Settings) -> Iterator[DoctorFinding]:
    """Binds the port for a moment. A gateway that `toolscript mcp` starts takes any free port."""
    where = f"port {settings.port} of {settings.host}"
    try:
        from toolscript.surfaces.http.server import listen

        listen(settings).close()
        yield DoctorFinding("gateway", Level.OK, f"{where} is free")
    except Unavailable as error:
        owner = describe_port_owner(settings.host, settings.port)
        text = error.message + (f". {owner}" if owner else "")
        yield DoctorFinding("gateway", Level.ERROR, text, "or set TOOLSCRIPT_PORT", cause="port")
    except ImportError:  # the extra `server` is missing, which the check of the package says
        pass


def is_gateway_usable(settings: Settings) -> bool:
    """Whether a gateway answers that knows the states of the servers."""
    try:
        return _ask_version(settings) is not None
    except ToolscriptError:
        return False
