"""Opens the sandboxes of code mode that the settings enable, where their packages are installed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from toolscript.adapters.sandbox.bounded_json import read_json, write_json
from toolscript.app.observability import Observability
from toolscript.domain.errors import Invalid, InvalidArguments, Unavailable
from toolscript.domain.programs import MAX_LIMITS, Language, RunLimits
from toolscript.ports.results import ResultStore
from toolscript.ports.sandboxes import Sandbox
from toolscript.ports.schemas import ArgumentChecker
from toolscript.ports.workflows import WorkflowStore
from toolscript.services.catalogue.quarantine_review import QuarantineReview
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.sync import Sync
from toolscript.services.catalogue.visibility import Visibility
from toolscript.services.code.host import HostServices
from toolscript.services.code.run import RunCode, check_limits
from toolscript.services.code.sessions import SessionResults
from toolscript.services.code.slots import MAX_NESTED_RUNS, MAX_RUNS
from toolscript.services.code.toolset import Toolsets
from toolscript.services.code.workflow_server import WorkflowServer
from toolscript.services.code.workflows import MAX_DEPTH, Workflows
from toolscript.services.servers.gateway import Gateway
from toolscript.services.support.call_admission import CallAdmission
from toolscript.services.support.configured_secrets import list_configured_secrets
from toolscript.services.tools.call import CallTool
from toolscript.services.tools.feedback import Feedback
from toolscript.services.tools.hybrid_search import ToolSearch
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


class CodeParts(Protocol):
    """What code mode needs of an application."""

    settings: Settings
    admission: CallAdmission
    result_store: ResultStore
    workflow_store: WorkflowStore
    argument_checker: ArgumentChecker
    observability: Observability
    sync: Sync
    quarantine: QuarantineReview
    gateway: Gateway
    snapshots: CatalogueSnapshots
    visibility: Visibility
    call_tool: CallTool
    tool_search: ToolSearch
    feedback: Feedback


class CodeMode:
    """The sandboxes of an application, and the service that runs programs in them."""

    def __init__(self, app: CodeParts) -> None:
        """Opens nothing yet, because the packages are slow to import. Raises Invalid."""
        self._app = app
        self.states = describe_languages(app.settings)
        self.languages = list_languages(app.settings)
        self.max_limits = read_max_limits(app.settings)
        self._sandboxes: dict[Language, Sandbox] = {}
        self._preparing: asyncio.Task[None] | None = None

    @property
    def default_language(self) -> Language:
        """The language of programs that name none: the first of TOOLSCRIPT_CODE that can be run."""
        return self.languages[0] if self.languages else Language.PYTHON

    @cached_property
    def toolsets(self) -> Toolsets:
        app = self._app
        return Toolsets(app.snapshots, app.visibility, lambda: app.gateway.statuses)

    @cached_property
    def run_code(self) -> RunCode:
        """The service. Imports what it needs when it is used first."""
        app = self._app
        services = HostServices(
            app.call_tool,
            app.tool_search,
            app.feedback,
            self.toolsets,
            SessionResults(app.result_store, app.visibility.find_profile, read_json, write_json),
            app.settings.search_threshold,
        )
        return RunCode(
            self._open_sandboxes(),
            self.states,
            services,
            app.admission,
            app.observability.events,
            app.observability.span,
            max_limits=self.max_limits,
            digests_programs=app.settings.audit_arguments == "digest",
            list_secrets=lambda: list_configured_secrets(app.gateway.specs.values()),
        )

    @cached_property
    def workflows(self) -> Workflows:
        app = self._app
        return Workflows(
            app.workflow_store,
            lambda: self.run_code,
            app.sync,
            app.quarantine,
            app.argument_checker,
            self.languages,
            self.toolsets,
            list_statuses=lambda: app.gateway.statuses,
        )

    @cached_property
    def workflow_server(self) -> WorkflowServer:
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
