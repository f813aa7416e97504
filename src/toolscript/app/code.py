"""Opens the sandboxes of code mode that the settings enable, where their packages are installed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec

from toolscript.adapters.sandbox.bounded_json import read_json, write_json
from toolscript.app.catalogue import CatalogueServices
from toolscript.app.observability import Observability
from toolscript.app.servers import ServerServices
from toolscript.app.stores import Stores
from toolscript.app.tools import ToolServices
from toolscript.domain.errors import Invalid, InvalidArguments, Unavailable
from toolscript.domain.programs import MAX_LIMITS, Language, RunLimits
from toolscript.ports.sandboxes import Sandbox
from toolscript.ports.schemas import ArgumentChecker
from toolscript.services.code.host import HostServices
from toolscript.services.code.run import RunCode, check_limits
from toolscript.services.code.sessions import SessionResults
from toolscript.services.code.slots import MAX_NESTED_RUNS, MAX_RUNS
from toolscript.services.code.toolset import Toolsets
from toolscript.services.code.workflow_server import WorkflowServer
from toolscript.services.code.workflows import MAX_DEPTH, Workflows
from toolscript.services.support.configured_secrets import list_configured_secrets
from toolscript.settings import Settings

READY = "ready"
# So that no program that may run waits for a process.
MAX_PROCESSES = MAX_RUNS + MAX_DEPTH * MAX_NESTED_RUNS
# The module that each extra installs.
MODULES = {Language.PYTHON: "pydantic_monty", Language.TYPESCRIPT: "deno"}


def list_languages(settings: Settings) -> list[Language]:
    """The languages of programs that can be run here, as TOOLSCRIPT_CODE orders them. Imports nothing. Raises
    Invalid."""
    states = describe_languages(settings)
    return [language for language in map(Language, settings.code) if states[language] == READY]


def describe_languages(settings: Settings) -> dict[Language, str]:
    """For each language whether programs in it can be run here, or what is missing. Raises Invalid."""
    if unknown := [name for name in settings.code if name not in set(Language)]:
        allowed = ", ".join(Language)
        raise Invalid(
            f"invalid value TOOLSCRIPT_CODE={','.join(settings.code)}: no such language: {unknown[0]}: expected some "
            f"of {allowed}",
            details={"field": "TOOLSCRIPT_CODE", "allowed": list(Language)},
        )
    return {language: _describe(language, settings) for language in MODULES}


def read_max_limits(settings: Settings) -> RunLimits:
    """The most that a program may use. Raises Invalid."""
    try:
        given = {
            name.strip(): float(number) for name, _, number in (each.partition("=") for each in settings.code_limits)
        }
        return replace(MAX_LIMITS, **check_limits(given, MAX_LIMITS))
    except (InvalidArguments, ValueError) as error:
        reason = error.message if isinstance(error, InvalidArguments) else "expected NAME=NUMBER, separated by commas"
        raise Invalid(
            f"invalid value TOOLSCRIPT_CODE_LIMITS={','.join(settings.code_limits)}: {reason}",
            details={"field": "TOOLSCRIPT_CODE_LIMITS"},
        ) from error


class CodeMode:
    """The sandboxes of an application, and the service that runs programs in them."""

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        checker: ArgumentChecker,
        observability: Observability,
        catalogue: CatalogueServices,
        servers: ServerServices,
        tools: ToolServices,
    ) -> None:
        """Opens nothing yet, because the packages are slow to import. Raises Invalid."""
        self._settings, self._stores, self._checker, self._observability = settings, stores, checker, observability
        self._catalogue, self._servers, self._tools = catalogue, servers, tools
        self.states = describe_languages(settings)
        self.languages = list_languages(settings)
        self.max_limits = read_max_limits(settings)
        self._sandboxes: dict[Language, Sandbox] = {}
        self._preparing: asyncio.Task[None] | None = None

    @property
    def default_language(self) -> Language:
        """The language of programs that name none: the first of TOOLSCRIPT_CODE that can be run."""
        return self.languages[0] if self.languages else Language.PYTHON

    @cached_property
    def toolsets(self) -> Toolsets:
        gateway = self._servers.gateway
        return Toolsets(self._catalogue.snapshots, self._catalogue.visibility, lambda: gateway.statuses)

    @cached_property
    def run_code(self) -> RunCode:
        """The service. Imports what it needs when it is used first."""
        settings, gateway, tools = self._settings, self._servers.gateway, self._tools
        find_profile = self._catalogue.visibility.find_profile
        services = HostServices(
            tools.call,
            tools.search,
            tools.feedback,
            self.toolsets,
            SessionResults(self._stores.results, find_profile, read_json, write_json),
            settings.search_threshold,
        )
        return RunCode(
            self._open_sandboxes(),
            self.states,
            services,
            self._servers.admission,
            self._observability.events,
            self._observability.span,
            max_limits=self.max_limits,
            digests_programs=settings.audit_arguments == "digest",
            list_secrets=lambda: list_configured_secrets(gateway.specs.values()),
        )

    @cached_property
    def workflows(self) -> Workflows:
        gateway = self._servers.gateway
        return Workflows(
            self._stores.workflows,
            lambda: self.run_code,
            self._catalogue.sync,
            self._catalogue.quarantine,
            self._checker,
            self.languages,
            self.toolsets,
            list_statuses=lambda: gateway.statuses,
        )

    def open_workflow_server(self) -> WorkflowServer:
        """The workflows as a server of the gateway."""
        return WorkflowServer(self.workflows)

    async def prepare(self) -> None:
        """Imports the packages, so that the first program does not wait 0.2 s for them, and everybody else with it.
        Then starts what programs need, in the background: a second for TypeScript."""
        for language in self.languages:
            await asyncio.to_thread(import_module, MODULES[language])
        self._preparing = asyncio.create_task(self._prepare_sandboxes())

    async def close(self) -> None:
        """Ends the programs that still run."""
        if self._preparing:
            self._preparing.cancel()
            await asyncio.wait([self._preparing])
        for sandbox in self._sandboxes.values():
            await sandbox.close()

    async def _prepare_sandboxes(self) -> None:
        for sandbox in self._open_sandboxes().values():
            with suppress(Unavailable):  # the first program gets the reason
                await sandbox.prepare()

    def _open_sandboxes(self) -> dict[Language, Sandbox]:
        if not self._sandboxes:
            self._sandboxes |= {language: _open(language) for language in self.languages}
        return self._sandboxes


def _describe(language: Language, settings: Settings) -> str:
    extra = f"pip install 'toolscript[code-{language}]'"
    is_installed = _is_installed(MODULES[language])
    if language not in settings.code:
        languages = ",".join([*settings.code, language])
        return f"off: set TOOLSCRIPT_CODE={languages}" + ("" if is_installed else f" after {extra}")
    return READY if is_installed else f"not installed: {extra}"


def _open(language: Language) -> Sandbox:
    match language:
        case Language.PYTHON:
            from toolscript.adapters.monty.sandbox import MontySandbox

            return MontySandbox(MAX_PROCESSES)
        case Language.TYPESCRIPT:
            from toolscript.adapters.deno.sandbox import DenoSandbox

            return DenoSandbox(MAX_PROCESSES)


@cache
def _is_installed(module: str) -> bool:
    return find_spec(module) is not None
