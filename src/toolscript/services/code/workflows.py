"""Saves programs as workflows, and runs them. A workflow is a tool of the server `workflows`."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from toolscript.codegen.parameters import PARAMETERS, declare_parameters
from toolscript.domain.errors import Conflict, InvalidArguments, NotFound, TimedOut, Unavailable
from toolscript.domain.programs import (
    DEFAULT_LIMITS,
    MAX_LIMITS,
    SERVER_NAME,
    Language,
    RunEnd,
    RunReport,
    Workflow,
)
from toolscript.domain.requests import current_request
from toolscript.domain.servers import ServerListing, ServerSpec, ServerStatus, Transport
from toolscript.domain.spelling import suggest
from toolscript.ports.schemas import ArgumentChecker
from toolscript.ports.workflows import WorkflowStore
from toolscript.services.catalogue.quarantine_review import QuarantineReview
from toolscript.services.catalogue.sync import Sync
from toolscript.services.code.host import RunCaller, count_waiting_programs, current_host
from toolscript.services.code.run import MAX_SOURCE_BYTES, RunCode, RunRequest
from toolscript.services.code.toolset import Toolsets

log = logging.getLogger(__name__)

MAX_WORKFLOWS = 1000
MAX_BYTES = 100_000
MAX_DESCRIPTION_LENGTH = 4000
# Workflows may call workflows, each in a process of its own.
MAX_DEPTH = 3
# What a schema of a result may refer to, which becomes a part of another unless it is one of objects.
RESULT_REFERENCES = ("#/$defs/", "#/definitions/")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class SavedWorkflow:
    """A workflow that was saved."""

    workflow: Workflow
    quarantine: str = ""
    """Why it cannot be called until a person approves it; empty if it can."""


class Workflows:
    """The workflows of a gateway."""

    def __init__(
        self,
        store: WorkflowStore,
        get_run_code: Callable[[], RunCode],
        sync: Sync,
        quarantine: QuarantineReview,
        checker: ArgumentChecker,
        languages: Collection[Language],
        toolsets: Toolsets,
        *,
        list_statuses: Callable[[], Sequence[ServerStatus]] = tuple,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`get_run_code` is called when the first program is run, because sandboxes are slow to import. `languages` are
        the languages that programs can be run in; `list_statuses` returns the connected servers."""
        self._store = store
        self._get_run_code = get_run_code
        self._sync = sync
        self._quarantine = quarantine
        self._checker = checker
        self._languages = languages
        self._toolsets = toolsets
        self._list_statuses = list_statuses
        self._clock = clock
        self._watchers: list[Callable[[], None]] = []

    def watch(self, watcher: Callable[[], None]) -> None:
        """Calls the watcher after every change."""
        self._watchers.append(watcher)

    async def list_all(self) -> Sequence[Workflow]:
        """All workflows, by name."""
        return await self._store.list_all()

    async def list_items(self) -> ServerListing:
        """The workflows as tools, as far as their programs can be run here."""
        workflows = await self._store.list_all()
        problems = [
            f"{each.name}: programs in {each.language} are not run here: set TOOLSCRIPT_CODE"
            for each in workflows
            if each.language not in self._languages
        ]
        items = [each.item for each in workflows if each.language in self._languages]
        return ServerListing(items, problems, approved=[item.id for item in items])

    async def get(self, name: str) -> Workflow:
        """The workflow of that name. Raises NotFound."""
        if _NAME.fullmatch(name) and (workflow := await self._store.find(name)):
            return workflow
        names = [workflow.name for workflow in await self._store.list_all()]
        raise NotFound(f"no such workflow: {name!r}{suggest(name, names)}", details={"workflow": name})

    async def save(self, workflow: Workflow, caller: RunCaller) -> SavedWorkflow:
        """Checks a workflow against the types of its parameters and tools, and saves it in place of the one with its
        name. Who saves it approves it, unless its texts address the model. Raises InvalidArguments, naming the line of
        the program, and Conflict where another server has the name of that of workflows."""
        require_own_server(self._list_statuses())
        await self._check(workflow, caller)
        tools = (await self._toolsets.find(workflow.language, workflow.source)).tools.tools
        workflow = replace(workflow, is_read_only=all(item.is_read_only for _, _, item in tools))
        existing = {each.name for each in await self._store.list_all()}
        if workflow.name not in existing and len(existing) >= MAX_WORKFLOWS:
            raise InvalidArguments(f"there are {MAX_WORKFLOWS} workflows already: remove some first")
        saved = replace(workflow, saved_at=self._clock(), saved_by=current_request().caller_name or "owner")
        await self._store.save(saved)
        await self._update_catalogue()
        waiting = await self._quarantine.list_waiting(SERVER_NAME)
        return SavedWorkflow(saved, next((pin.reason for pin in waiting if pin.item_id == saved.item.id), ""))

    async def list_servers(self, language: Language, source: str) -> set[str]:
        """The servers of the tools that a program names, and the servers that the workflows among them name."""
        servers, seen, waiting = set[str](), set[str](), [(language, source)]
        while waiting:
            toolset = await self._toolsets.find(*waiting.pop())
            for _, _, item in toolset.tools.tools:
                servers.add(item.server)
                is_new = item.server == SERVER_NAME and item.name not in seen
                seen |= {item.name} if is_new else set()
                if is_new and (workflow := await self._store.find(item.name)):
                    waiting.append((workflow.language, workflow.source))
        return servers

    async def remove(self, name: str) -> None:
        """Removes a workflow. Raises NotFound, and Conflict as `save` does."""
        require_own_server(self._list_statuses())
        await self.get(name)
        await self._store.remove(name)
        await self._update_catalogue()

    async def run(
        self, workflow: Workflow, arguments: Mapping[str, Any], caller: RunCaller, *, seconds: float
    ) -> RunReport:
        """Runs a workflow. Raises what `RunCode.run` raises, and InvalidArguments when workflows call each other too
        deeply."""
        if count_waiting_programs() > MAX_DEPTH:
            raise InvalidArguments(f"programs call workflows more than {MAX_DEPTH} deep: {workflow.name}")
        host, seconds = current_host.get(), min(seconds, MAX_LIMITS.seconds)
        request = RunRequest(
            workflow.source,
            workflow.language,
            host.get_rest(seconds) if host else replace(DEFAULT_LIMITS, seconds=seconds),
            inputs={PARAMETERS: dict(arguments)},
            input_types=declare_parameters(workflow.language, workflow.parameters),
            name=workflow.item.id,
            check_value=partial(self._check_result, workflow),
        )
        # The catalogue may have one that another gateway has replaced since, which was read-only.
        may_change = caller.may_change and not workflow.is_read_only and (host is None or host.may_change)
        return await self._get_run_code().run(request, replace(caller, may_change=may_change))

    async def _check_result(self, workflow: Workflow, value: Any) -> str | None:
        """What is wrong with the value that a program has returned, by the schema of its result."""
        schema, opening = workflow.output_schema, "the program's value does not match the schema of its result: "
        if schema is None:
            return None
        if workflow.returns_object and not isinstance(value, Mapping):
            return f"{opening}{_shorten(value)} is not of type 'object'"
        try:
            problem = await self._checker.check(schema, workflow.build_structured(value))
        except (TimedOut, Unavailable) as error:  # its tools have been called: the value would be lost
            log.warning("result_not_checked", extra={"tool": workflow.item.id, "reason": error.message})
            return None
        return f"{opening}{problem.field}: {problem.message}" if problem else None

    async def _check_schemas(self, workflow: Workflow) -> None:
        if not workflow.returns_object and any(
            not each.startswith(RESULT_REFERENCES) for each in _list_references(workflow.result)
        ):
            raise _build_invalid("result", f"references must begin with {' or '.join(RESULT_REFERENCES)}")
        for field, schema in (("parameters", workflow.parameters), ("result", workflow.output_schema)):
            if not schema:
                continue
            try:
                fault = await self._checker.find_fault(schema)
            except TimedOut as error:
                raise TimedOut(
                    f"{field}: {error.message}: try again, or make the schema smaller", details={"field": field}
                ) from error
            if fault:
                raise _build_invalid(field, f"must be a valid JSON Schema: {fault}")

    async def _check(self, workflow: Workflow, caller: RunCaller) -> None:
        _check_texts(workflow)
        await self._check_schemas(workflow)
        request = RunRequest(
            workflow.source,
            workflow.language,
            input_types=declare_parameters(workflow.language, workflow.parameters),
            checks_only=True,
        )
        report = await self._get_run_code().run(request, caller)
        if report.outcome.end is not RunEnd.DONE:
            raise InvalidArguments(
                f"source: {report.outcome.message}",
                details={
                    "field": "source",
                    "problems": [
                        {"line": each.line, "message": each.message, "signatures": list(each.signatures)}
                        for each in report.problems
                    ],
                },
            )

    async def _update_catalogue(self) -> None:
        """The workflow is saved or removed by now: if the catalogue cannot follow, the server of workflows tries again,
        as after any change of what a server lists."""
        try:
            listing = await self.list_items()
            await self._sync.run(listing.items, servers={SERVER_NAME}, approved=listing.approved)
        except Unavailable as error:
            log.warning("workflows_not_in_the_catalogue_yet", extra={"reason": error.message})
        for watcher in self._watchers:
            watcher()


def require_own_server(servers: Iterable[ServerSpec | ServerStatus]) -> None:
    """Raises Conflict if another server has the name of the server of workflows: workflows would replace its tools."""
    if any(each.name == SERVER_NAME and each.transport is not Transport.INTERNAL for each in servers):
        raise Conflict(
            f"a configured server is named {SERVER_NAME} and takes the place of the workflows: rename its entry",
            details={"server": SERVER_NAME},
        )


def _list_references(schema: Any) -> list[str]:
    """All references, also references in examples and other parts that are data."""
    references, parts = [], [schema]
    while parts:
        match parts.pop():
            case Mapping() as part:
                references += [each for name, each in part.items() if name == "$ref" and isinstance(each, str)]
                parts += part.values()
            case list() as part:
                parts += part
    return references


def _check_texts(workflow: Workflow) -> None:
    """Raises InvalidArguments, naming the field."""
    if not _NAME.fullmatch(workflow.name):
        allowed = "must have 1 to 64 lower-case letters (a to z), digits and underscores, and start with a letter"
        raise _build_invalid("name", f"{allowed}: {workflow.name[:100]!r}")
    if not workflow.description.strip() or len(workflow.description) > MAX_DESCRIPTION_LENGTH:
        raise _build_invalid(
            "description", f"must say what the workflow does, in at most {MAX_DESCRIPTION_LENGTH} characters"
        )
    for field in ("description", "source"):
        text: str = getattr(workflow, field)
        if "\0" in text or not _is_json(text):
            raise _build_invalid(field, "must have no NUL and no half of a surrogate pair")
    if not workflow.source.strip() or len(workflow.source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise _build_invalid("source", f"must not be blank, and have at most {MAX_SOURCE_BYTES} bytes")
    schema = workflow.parameters
    if schema.get("type") != "object" or not isinstance(schema.get("properties", {}), Mapping):
        raise _build_invalid("parameters", 'must be a JSON Schema with "type": "object" and "properties"')
    for name, value in {"parameters": schema, "result": workflow.result}.items():
        if not _is_json(value) or len(json.dumps(value)) > MAX_BYTES:
            raise _build_invalid(name, f"must be JSON of at most {MAX_BYTES} bytes")


def _is_json(value: Any) -> bool:
    """Whether a value can be written as JSON: not NaN, nor half of a surrogate pair, nor what is nested too deeply."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def _build_invalid(field: str, message: str) -> InvalidArguments:
    return InvalidArguments(f"{field}: {message}", details={"field": field})


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"  # noqa: PLR2004  (a line or two of a terminal)
