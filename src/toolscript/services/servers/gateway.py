"""Many servers behind one gateway, and the resync of all of them.

Each server has its own connection, so that a slow or broken one does not affect the others."""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from toolscript.domain.access import ApprovalPolicy
from toolscript.domain.catalog import Item, SuggestionStatus
from toolscript.domain.errors import (
    Forbidden,
    Invalid,
    LoginRequired,
    NotFound,
    ToolscriptError,
    Unavailable,
    UpstreamFailed,
)
from toolscript.domain.limits import Limits, current_limits
from toolscript.domain.requests import current_request
from toolscript.domain.servers import (
    NO_RELAY,
    CallRelay,
    CallResult,
    CallState,
    LogLine,
    ServerSpec,
    ServerStart,
    ServerState,
    ServerStatus,
)
from toolscript.domain.spelling import suggest
from toolscript.ports.servers import ToolServer, ToolServers
from toolscript.ports.stores import ItemStore, SkillStore
from toolscript.services.catalogue.sync import ItemCounts, Sync
from toolscript.services.servers.activity import ServerActivity
from toolscript.services.servers.connection import RefreshResult, ServerConnection
from toolscript.services.support.call_admission import CallAdmission
from toolscript.services.support.concurrency import Progress, finish_when_cancelled
from toolscript.services.support.fixed_arguments import fill_arguments

# How many servers are started at a time only to be listed. Of starts that calls wait for there is no maximum.
LISTING_SLOTS = 8

Watcher = Callable[[ServerStatus], None]

log = logging.getLogger(__name__)


class Gateway:
    """Keeps the configured servers connected and the catalogue at what they offer."""

    def __init__(
        self,
        servers: ToolServers,
        sync: Sync | None,
        limits: Limits | None = None,
        admission: CallAdmission | None = None,
    ) -> None:
        """Without a `sync` servers are connected and listed, and there is no catalogue."""
        self._admission = admission or CallAdmission()
        self._servers = servers
        self._sync = sync
        self._limits = limits or current_limits()
        self._connections: dict[str, ServerConnection] = {}
        self._user_connections: dict[tuple[str, str], ServerConnection] = {}
        """By server and user, of servers with a login per user."""
        self._watchers: list[Watcher] = []
        self._known_servers: ItemCounts = {}
        self._listed: dict[str, str] = {}
        """The digests of the servers' entries when they were last listed."""
        self._positions: dict[str, int] = {}
        self._stopped: dict[str, str] = {}
        """The reasons of the servers that somebody has stopped."""
        self._activities: dict[str, ServerActivity] = {}
        self._changing = asyncio.Lock()
        """Held while servers are added, removed, started or stopped: a server that is removed must not be started."""
        self._is_closed = False
        self._slots = asyncio.Semaphore(LISTING_SLOTS)
        self._expected: Mapping[str, ServerSpec] = {}
        """The servers of the first configuration, until it is applied."""
        self._is_configured = asyncio.Event()
        self._is_configured.set()
        self.version = 0  # another one after each change of the configured servers
        self.configuration_error: str | None = None
        """Why the newest configuration is not in use."""

    def watch(self, watcher: Watcher) -> None:
        """Calls the watcher with every new status of every server."""
        self._watchers.append(watcher)

    @property
    def call_timeout(self) -> float:
        """The seconds that a call may take by default."""
        return self._limits.call

    @property
    def statuses(self) -> list[ServerStatus]:
        """The status of every configured server, by name."""
        return [self._get_status(connection) for connection in self._by_name()]

    @property
    def starting(self) -> list[str]:
        """The servers that are not listed yet and have nothing in the catalogue from an earlier run."""
        coming = self._expected or [n for n, c in self._connections.items() if not c.has_settled.is_set()]
        return [name for name in coming if name not in self._known_servers]

    @property
    def is_incomplete(self) -> bool:
        """Whether there are such servers, or the first configuration is not applied yet."""
        return bool(self.starting) or not self._is_configured.is_set()

    def get_position(self, server: str) -> int:
        """The place of a server in the configuration; others come last."""
        return self._positions.get(server, len(self._positions))

    def get_approval(self, server: str) -> ApprovalPolicy:
        """The tools of a server that a person has to approve before each call, by its entry."""
        return spec.approval if (spec := self.find_spec(server)) else ApprovalPolicy.NEVER

    def find_call_state(self, server: str) -> CallState | None:
        """ASLEEP if the next call to that server has to start it, STOPPED if its calls are refused, else None."""
        connection = self._connections.get(server)
        if connection is None or not (connection.is_asleep or connection.is_stopped):
            return None
        return CallState.STOPPED if connection.is_stopped else CallState.ASLEEP

    def expect(self, specs: Sequence[ServerSpec], listed: Collection[str] = ()) -> None:
        """Names the servers that the first `apply` will connect: until it has, calls wait. `listed` names the servers
        with items from an earlier run."""
        self._is_configured.clear()
        self._expected = {spec.name: spec for spec in specs}
        self._known_servers = {name: {} for name in listed}

    @finish_when_cancelled
    async def apply(
        self,
        specs: Sequence[ServerSpec],
        *,
        among: Sequence[ServerSpec] | None = None,
        listed: Mapping[str, str] | None = None,
        stopped: Mapping[str, str] | None = None,
    ) -> None:
        """Makes these the servers: connects new servers, reconnects changed servers, disconnects the others.

        `among` names all configured servers, when only some of them are to be connected. `listed` has the digests of
        servers with items from an earlier run: lazy servers among them are not started. `stopped` has the reasons for
        servers that were stopped in an earlier run: they stay stopped.
        """
        async with self._change():
            self._stopped.update(stopped or {})
            if not self._connections:
                self.expect(specs, listed or ())
            try:
                await self._apply(specs, among, listed)
            finally:
                self._expected = {}
                self.version += 1
                self._is_configured.set()

    async def _apply(
        self, specs: Sequence[ServerSpec], among: Sequence[ServerSpec] | None, listed: Mapping[str, str] | None
    ) -> None:
        self._listed.update(listed or {})
        self._positions = {spec.name: place for place, spec in enumerate(among or specs)}
        specs_by_name = {spec.name: spec for spec in specs}
        configured = [spec.name for spec in among or specs]
        self._known_servers = await self._sync.configure(configured) if self._sync else {}
        ended = [c for name, c in self._connections.items() if specs_by_name.get(name) != c.spec]
        of_users = self._close_user_connections({connection.spec.name for connection in ended})
        await asyncio.gather(of_users, *(connection.stop() for connection in ended))
        for connection in ended:
            del self._connections[connection.spec.name]
            self._admission.forget(connection.spec.name)
        if self._sync and any(connection.spec.name not in specs_by_name for connection in ended):
            await self._sync.configure(configured)  # the last listing of a stopped server may have been stored
        for forgotten in (self._stopped.keys() | self._activities.keys()) - specs_by_name.keys():
            self._activities.pop(forgotten, None)
            self._stopped.pop(forgotten, None)
        for name, spec in specs_by_name.items():
            if name not in self._connections:
                known = self._known_servers.get(name) if self._listed.get(name) == spec.digest else None
                self._connections[name] = ServerConnection(
                    spec,
                    self._servers,
                    self._sync,
                    self._limits,
                    self._report_status,
                    self._slots,
                    known,
                    self._activities.setdefault(name, ServerActivity()),
                    self._stopped.get(name),
                )

    @property
    def stopped(self) -> Mapping[str, str]:
        """The servers that somebody has stopped, with the reasons."""
        return dict(self._stopped)

    async def stop_server(self, name: str, reason: str) -> ServerStatus:
        """Stops a server until somebody starts it: its calls are refused, and its tools stay in the catalogue. One that
        is stopped already keeps its reason. Raises NotFound."""
        async with self._change():
            connection = self._get_connection(name)
            if not connection.is_stopped:
                self._stopped[name] = reason
                log.info("server_stopped", extra={"server": name, "reason": reason, "caller": current_request().caller})
                await asyncio.gather(connection.halt(reason), self._close_user_connections({name}))
        return self._get_status(connection)

    async def start_server(self, name: str) -> ServerStatus:
        """Starts a server that is stopped, asleep, or has failed; calls to it are tried again. Raises NotFound."""
        async with self._change():
            connection = self._get_connection(name)
            self._stopped.pop(name, None)
            self._admission.forget(name)
            log.info("server_started", extra={"server": name, "caller": current_request().caller})
            connection.start()
        return self._get_status(connection)

    @finish_when_cancelled
    async def restart_server(self, name: str, reason: str) -> ServerStatus:
        """Stops a server and starts it. Raises NotFound."""
        async with self._change():
            connection = self._get_connection(name)
            self._stopped.pop(name, None)
            self._admission.forget(name)
            log.info("server_restarted", extra={"server": name, "reason": reason, "caller": current_request().caller})
            await asyncio.gather(connection.restart(reason), self._close_user_connections({name}))
        return self._get_status(connection)

    @property
    def specs(self) -> Mapping[str, ServerSpec]:
        """The entries of the servers, by name."""
        return {name: connection.spec for name, connection in self._connections.items()}

    def get_spec(self, name: str) -> ServerSpec:
        """The entry of a server. Raises NotFound."""
        return self._get_connection(name).spec

    def get_log(self, name: str) -> Sequence[LogLine]:
        """The latest lines of a server's log, the oldest first. Raises NotFound."""
        return self._get_connection(name).activity.lines

    def _get_connection(self, name: str) -> ServerConnection:
        if connection := self._connections.get(name):
            return connection
        raise NotFound(f"no such server: {name!r}{suggest(name, self._connections)}", details={"server": name})

    def _get_status(self, connection: ServerConnection) -> ServerStatus:
        return replace(connection.status, calls_paused_seconds=self._admission.find_pause(connection.spec.name))

    async def _close_user_connections(self, servers: Collection[str]) -> None:
        keys = [key for key in self._user_connections if key[0] in servers]
        await asyncio.gather(*(self._user_connections.pop(key).stop() for key in keys))

    async def settle(self, within: float, server: str | None = None) -> None:
        """Waits until every server (or that one) is ready, asleep, or has failed, at most that many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._is_configured.wait()
                awaited = [connection for name, connection in self._connections.items() if server in {None, name}]
                await asyncio.gather(*(connection.has_settled.wait() for connection in awaited))

    async def wait_for_first_listing(self) -> None:
        """Waits at the first start, when nothing was ever listed, until every server is listed or has failed, at most
        `first_listing` seconds."""
        if self.is_incomplete and not (self._known_servers or self._listed):
            await self.settle(self._limits.first_listing)

    async def wait_until_configured(self) -> None:
        """Waits while the first configuration is being applied, at most as long as a call may take."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.call):
                await self._is_configured.wait()

    async def refresh(self) -> list[RefreshResult]:
        """Lists every server that is connected or asleep again and syncs the catalogue."""
        return list(await asyncio.gather(*(connection.refresh() for connection in self._by_name())))

    @property
    def last_refreshes(self) -> list[RefreshResult]:
        """The result of each server's last listing."""
        return [connection.last_refresh for connection in self._by_name()]

    async def follow(self, seen: object, stamp: Callable[[], object], load: Callable[[], Sequence[ServerSpec]]) -> None:
        """Applies the configuration whenever its stamp differs from `seen`, the stamp of the one in use, until
        cancelled. An invalid configuration is logged and kept as `configuration_error`; the previous one stays."""
        while True:
            await asyncio.sleep(self._limits.poll)
            if (now := stamp()) == seen:
                continue
            try:
                await self.apply(await asyncio.to_thread(load))
            except Exception as error:  # noqa: BLE001  (the gateway survives whatever is wrong with a file)
                reason = error.message if isinstance(error, ToolscriptError) else f"{type(error).__name__}: {error}"
                if reason != self.configuration_error:
                    log.warning("configuration_not_applied", extra={"reason": reason})
                self.configuration_error = reason
                seen = now if isinstance(error, Invalid) else seen  # other errors may pass: try again
            else:
                seen, self.configuration_error = now, None
                log.info("configuration_applied", extra={"servers": sorted(self._connections)})

    async def call(
        self, item: Item, arguments: Mapping[str, Any], within: float, relay: CallRelay = NO_RELAY, sent: object = None
    ) -> CallResult:
        """Passes a call to the item's server, which is started or connected again first if need be. Raises NotFound for
        what the configuration excludes, InvalidArguments for an argument that it fixes, Conflict unless the
        arguments with its values are those of `sent`, Unavailable when the server cannot be connected or kept failing,
        RateLimited, UpstreamFailed when it fails or dies, TimedOut."""
        connection, is_ok = await self._find_connection(item), False
        arguments = fill_arguments(connection.spec.tools, item, arguments, expected=sent)
        admitted = self._admission.admit(item, connection.spec, self._limits.call)
        async with admitted, self._use(item, relay.user) as server:
            began = time.monotonic()
            try:
                result = await server.call(item, arguments, within=within, relay=relay)
                is_ok = not result.is_error
            finally:
                connection.activity.note_call(time.monotonic() - began, is_ok=is_ok)
        return result

    async def complete(
        self, item: Item, params: Mapping[str, Any], within: float, user: str | None = None
    ) -> Mapping[str, Any]:
        """Asks the item's server to complete an argument of it. Raises what `call` raises."""
        async with self._use(item, user) as server:
            return await server.complete(params, within=within)

    async def follow_resource(
        self, item: Item, uri: str, *, on_start: Callable[[], object], on_update: Callable[[str], object]
    ) -> None:
        """Follows a resource of the item's server until the connection ends. The server stays awake. Raises what `call`
        raises."""
        async with self._use(item) as server:
            await server.follow_resource(uri, on_start=on_start, on_update=on_update)

    @asynccontextmanager
    async def _use(self, item: Item, user: str | None = None) -> AsyncIterator[ToolServer]:
        """The server of an item that the configuration allows. A server that is lost meanwhile is started again."""
        connection = await self._find_connection(item)
        if connection.spec.oauth.per_user and user != "":
            connection = self._find_user_connection(connection.spec, user)
        async with connection.use() as server:
            try:
                yield server
            except (Unavailable, UpstreamFailed) as error:
                if self._connections.get(item.server, connection).is_stopped:
                    raise UpstreamFailed(
                        f"server {item.server} was stopped during the call: it is unknown whether the call took effect",
                        details={"server": item.server},
                    ) from error
                if isinstance(error, UpstreamFailed):
                    raise
                connection.abandon(server, error.message)
                if isinstance(error, LoginRequired):  # the server refused the call, so it took no effect
                    raise
                raise UpstreamFailed(
                    f"server {item.server} was lost during the call ({error.message}) and is being started again; it "
                    "is unknown whether the call took effect",
                    details={"server": item.server},
                ) from error

    def _find_user_connection(self, spec: ServerSpec, user: str | None) -> ServerConnection:
        """The connection with the login of that user: it is opened when it is used, and closed when it is idle."""
        if user is None:
            raise Forbidden(
                f"server {spec.name} has a login per user, and this request has none: call its tools instead",
                details={"server": spec.name},
            )
        key = spec.name, user
        if self._is_closed:
            raise Unavailable("the gateway is stopping", details={"server": spec.name})
        if key not in self._user_connections:
            user_spec = replace(spec, user=user, start=ServerStart.LAZY)
            self._user_connections[key] = ServerConnection(
                user_spec, self._servers, None, self._limits, lambda _: None, self._slots, {}
            )
        return self._user_connections[key]

    async def _find_connection(self, item: Item) -> ServerConnection:
        await self.wait_until_configured()
        connection = self._connections.get(item.server)
        if connection is None:
            problem = "not configured" if self._is_configured.is_set() else "still starting: try again in a moment"
            raise Unavailable(f"server {item.server} is {problem}", details={"server": item.server})
        if not connection.spec.allows_item(item):
            raise NotFound(f"the configuration excludes {item.id}", details={"tool": item.id})
        if connection.is_stopped:
            raise Unavailable(
                f"server {item.server} is {connection.status.reason}: its tools cannot be used until somebody starts "
                f"it (`toolscript servers start {shlex.quote(item.server)}`, or the console)",
                details={"server": item.server, "state": ServerState.STOPPED.value},
            )
        return connection

    def offers(self, item: Item) -> bool:
        """Whether the item's server is configured here, and its configuration allows the item."""
        return (spec := self.find_spec(item.server)) is not None and spec.allows_item(item)

    def offers_everything(self, server: str) -> bool:
        """Whether the server is configured here, and its configuration excludes nothing."""
        return (spec := self.find_spec(server)) is not None and spec.allows_everything

    def find_spec(self, server: str) -> ServerSpec | None:
        """The entry of a server; None for one that is not configured."""
        connection = self._connections.get(server)
        return connection.spec if connection else self._expected.get(server)

    def reconnect(self, name: str, user: str, reason: str) -> None:
        """Connects a server again at once, for this user; a name that is not configured is ignored."""
        connection = self._user_connections.get((name, user)) if user else self._connections.get(name)
        if connection:
            connection.reconnect(reason)

    async def close(self) -> None:
        """Ends every connection and every process that was started, after a change that is under way; later changes are
        refused."""
        self._is_closed = True
        self._is_configured.set()
        async with self._changing:
            everything = [*self._connections.values(), *self._user_connections.values()]
            await asyncio.gather(*(connection.stop() for connection in everything))
            self._connections.clear()
            self._user_connections.clear()

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """One change of the servers at a time. Raises Unavailable when the gateway is closed: what the change starts
        would not be stopped."""
        async with self._changing:
            if self._is_closed:
                raise Unavailable("the gateway is stopping: its servers cannot be changed")
            yield

    def _by_name(self) -> list[ServerConnection]:
        return [self._connections[name] for name in sorted(self._connections)]

    def _report_status(self, status: ServerStatus) -> None:
        if status.state is ServerState.READY and (connection := self._connections.get(status.name)):
            self._listed[status.name] = connection.spec.digest
        for watcher in self._watchers:
            try:
                watcher(status)
            except Exception:  # a watcher's fault must not stop the connection
                log.exception("watcher_failed", extra={"server": status.name})


@dataclass(frozen=True, slots=True)
class ResyncReport:
    """What a resync did: per server, then for the whole catalogue."""

    servers: list[RefreshResult]
    items: int
    classified: int
    refined: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Resync:
    """Lists every server again that is connected or asleep, and brings catalogue and index up to date."""

    gateway: Gateway
    sync: Sync
    item_store: ItemStore
    skill_store: SkillStore

    async def run(
        self,
        *,
        reclassify: bool = False,
        force: bool = False,
        just_connected: bool = False,
        progress: Progress | None = None,
    ) -> ResyncReport:
        """With `reclassify` every item is classified again, with `force` also items that a person assigned. Servers
        that are `just_connected` were listed already: the report has their results."""
        refined_before = 0 if just_connected else self.sync.refinement.refined
        servers = self.gateway.last_refreshes if just_connected else await self.gateway.refresh()
        everything = reclassify or force
        done = await self.sync.reclassify(
            None if everything else (), force=force, replace_model=everything, progress=progress
        )
        items = [item.id for item in await self.item_store.get_fingerprints() if item.is_active]
        await self.sync.refinement.run(items if everything else None, progress=progress)
        await self.sync.review_definitions()
        waiting = await self.skill_store.list_suggestions(SuggestionStatus.PENDING)
        classified = done.classified + sum(r.report.classified for r in servers if r.report)
        refined = self.sync.refinement.refined - refined_before  # includes items refined while servers were listed
        return ResyncReport(servers, len(items), classified, refined, len(waiting))
