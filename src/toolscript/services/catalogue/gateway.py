"""Many servers behind one door: each is connected, watched and connected again by a keeper of its own, so that one
that is slow, broken or absent never hinders the others."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.domain.errors import Invalid, NotFound, ToolscriptError, Unavailable, UpstreamFailed
from toolscript.domain.servers import CallResult, ServerSpec, ServerState, ServerStatus
from toolscript.ports.servers import ToolServer, ToolServers
from toolscript.services.catalogue.sync import Sync, SyncReport

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long anything may take, in seconds."""

    connect: float = 30.0
    call: float = 60.0
    reconnect: float = 10.0
    heartbeat: float = 30.0
    first_pause: float = 1.0
    max_pause: float = 60.0
    debounce: float = 0.2
    poll: float = 1.0


Watcher = Callable[[ServerStatus], None]


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What asking a server anew has led to, or why it could not be asked."""

    name: str
    report: SyncReport | None = None
    reason: str | None = None


class Gateway:
    """Keeps the configured servers connected and the catalogue at what they offer."""

    def __init__(self, servers: ToolServers, sync: Sync, limits: Timeouts | None = None) -> None:
        self._servers = servers
        self._sync = sync
        self._limits = limits or Timeouts()
        self._keepers: dict[str, _Keeper] = {}
        self._watchers: list[Watcher] = []
        self._known: frozenset[str] = frozenset()
        self._is_opening = False
        self.configuration_error: str | None = None
        """What is wrong with the newest configuration, when an older one is in use for it."""

    def watch(self, watcher: Watcher) -> None:
        """Has the watcher told of every server's every new status."""
        self._watchers.append(watcher)

    @property
    def statuses(self) -> list[ServerStatus]:
        """How every configured server is doing, by name."""
        return [self._keepers[name].status for name in sorted(self._keepers)]

    @property
    def is_incomplete(self) -> bool:
        """Whether tools of some server are still on their way into the catalogue, none of which was known before."""
        coming = (name for name, keeper in self._keepers.items() if not keeper.settled.is_set())
        return self._is_opening or any(name not in self._known for name in coming)

    async def apply(self, specs: Sequence[ServerSpec], *, among: Sequence[ServerSpec] | None = None) -> None:
        """Makes these the servers: starts new ones, restarts changed ones, ends the others. The rest goes on.

        `among` names all that are configured, when only some of them are to be started.
        """
        wanted = {spec.name: spec for spec in specs}
        configured = [spec.name for spec in among or specs]
        self._is_opening = not self._keepers
        try:
            self._known = await self._sync.configure(configured)
        finally:
            self._is_opening = False
        ended = [k for name, k in self._keepers.items() if wanted.get(name) != k.spec]
        await asyncio.gather(*(keeper.stop() for keeper in ended))
        for keeper in ended:
            del self._keepers[keeper.spec.name]
        if any(keeper.spec.name not in wanted for keeper in ended):
            await self._sync.configure(configured)  # its last listing may have come in meanwhile
        for name, spec in wanted.items():
            if name not in self._keepers:
                self._keepers[name] = _Keeper(spec, self._servers, self._sync, self._limits, self._tell)

    async def settle(self, within: float) -> None:
        """Waits until every server is either ready or known to fail, but no longer than that."""
        waiting = [asyncio.ensure_future(keeper.settled.wait()) for keeper in self._keepers.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=within)
            for wait in late:
                wait.cancel()

    async def refresh(self) -> list[RefreshResult]:
        """Asks every server anew what it offers, and brings the catalogue to that. One that fails is told of."""
        return list(await asyncio.gather(*(self._keepers[name].refresh() for name in sorted(self._keepers))))

    @property
    def last_refreshes(self) -> list[RefreshResult]:
        """What asking each server the last time has led to."""
        return [self._keepers[name].last_refreshes for name in sorted(self._keepers)]

    async def follow(self, seen: object, stamp: Callable[[], object], load: Callable[[], Sequence[ServerSpec]]) -> None:
        """Applies the configuration anew whenever its stamp is another than `seen`, that of the one in force, until
        cancelled. One that is wrong is complained about, and the one before it stays in force."""
        while True:
            await asyncio.sleep(self._limits.poll)
            now = stamp()
            if now == seen:
                continue
            try:
                await self.apply(await asyncio.to_thread(load))
            except Exception as error:  # noqa: BLE001  (whatever is wrong with a file, the gateway goes on)
                reason = error.message if isinstance(error, ToolscriptError) else f"{type(error).__name__}: {error}"
                if reason != self.configuration_error:
                    log.warning("configuration_not_applied", extra={"reason": reason})
                self.configuration_error = reason
                seen = now if isinstance(error, Invalid) else seen  # what is no fault of the file is tried again
            else:
                seen, self.configuration_error = now, None
                log.info("configuration_applied", extra={"servers": sorted(self._keepers)})

    async def call(self, item: Item, arguments: Mapping[str, Any], within: float | None = None) -> CallResult:
        """Passes a call to the item's server; one that has died is started again first.

        Raises NotFound for what the configuration leaves out, Unavailable when the server cannot be had,
        UpstreamFailed when it fails or dies, TimedOut.
        """
        keeper = self._keepers.get(item.server)
        if keeper is None:
            raise Unavailable(f"server {item.server} is not configured here", details={"server": item.server})
        if not keeper.spec.allows_tool(item.name):
            raise NotFound(f"{item.id} is left out by the configuration", details={"tool": item.id})
        server = await keeper.connected()
        try:
            return await server.call(item, arguments, within=within or self._limits.call)
        except Unavailable as error:
            keeper.let_go(server, error.message)
            raise UpstreamFailed(
                f"server {item.server} was lost during the call ({error.message}) and is being started again; whether "
                "the call had an effect is not known",
                details={"server": item.server},
            ) from error

    async def close(self) -> None:
        """Ends every connection and every process that was started."""
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers.values()))
        self._keepers.clear()

    def _tell(self, status: ServerStatus) -> None:
        for watcher in self._watchers:
            try:
                watcher(status)
            except Exception:  # whoever watches must not disturb what is watched
                log.exception("watcher_failed", extra={"server": status.name})


class _Keeper:
    """Keeps one server connected until stopped."""

    def __init__(
        self, spec: ServerSpec, servers: ToolServers, sync: Sync, limits: Timeouts, tell: Callable[[ServerStatus], None]
    ) -> None:
        self.spec = spec
        self.settled = asyncio.Event()
        self._servers = servers
        self._sync = sync
        self._limits = limits
        self._tell = tell
        self._server: ToolServer | None = None
        self._report: SyncReport | None = None
        self._asking = asyncio.Lock()
        self._given_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._attempts = 0
        self._failures = 0
        self._retry_at: float | None = None
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._status = ServerStatus(spec.name, spec.transport, ServerState.CONNECTING)
        self._task = asyncio.create_task(self._keep(), name=f"keeper of {spec.name}")

    @property
    def status(self) -> ServerStatus:
        left = None if self._retry_at is None else round(max(0.0, self._retry_at - time.monotonic()), 1)
        return replace(self._status, attempts=self._attempts, retry_in_seconds=left)

    async def stop(self) -> None:
        """Ends the connection; returns when nothing of it is left."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        async with self._asking:  # what somebody else has asked it for is in the catalogue, or will not be
            pass

    async def connected(self) -> ToolServer:
        """The live connection. When there is none, one attempt is made at once and waited for a while. Raises
        Unavailable, saying why."""
        is_under_way = self._status.state is ServerState.CONNECTING and not self._given_up.done()
        waiting_for = self._attempts if is_under_way else self._attempts + 1
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.reconnect):
                while self._server is None and not self._failed(waiting_for):
                    if self._status.state is ServerState.FAILED:
                        self._wake.set()
                    self._moved.clear()
                    await self._moved.wait()
        if self._server is None:
            reason = self._status.reason or "it has not answered yet"
            raise Unavailable(f"server {self.spec.name} is not available: {reason}", details={"server": self.spec.name})
        return self._server

    @property
    def last_refreshes(self) -> RefreshResult:
        """What asking it the last time has led to, if there is a connection."""
        if self._server is None or self._report is None:
            return RefreshResult(self.spec.name, reason=self._status.reason or "it has not answered yet")
        return RefreshResult(self.spec.name, self._report)

    async def refresh(self) -> RefreshResult:
        """Asks the server anew what it offers, if there is a connection."""
        server = self._server
        if server is None:
            return self.last_refreshes
        try:
            report = await self._refresh(server)
        except ToolscriptError as error:
            return RefreshResult(self.spec.name, reason=error.message)
        except Exception as error:  # whatever one server does must not reach the others
            log.exception("server_fault", extra={"server": self.spec.name})
            return RefreshResult(self.spec.name, reason=f"{type(error).__name__}: {error}")
        return RefreshResult(self.spec.name, report)

    def _failed(self, attempt: int) -> bool:
        return self._status.state is ServerState.FAILED and self._attempts >= attempt

    def let_go(self, server: ToolServer, reason: str) -> None:
        """Gives up that connection: a call has found it gone, whether its end has been seen yet or not."""
        if self._server is server:
            self._server = None
            self._given_up.set_result(reason)

    async def _keep(self) -> None:
        while True:
            reason = await self._stay_connected()
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError  # a fault of the transport came first and hid it
            self._failures += 1
            pause = self._pause()
            self._retry_at = time.monotonic() + pause
            news = reason != self._status.reason or self._attempts == 1
            self._now(ServerState.FAILED, reason=reason)
            if news:
                told = {"server": self.spec.name, "reason": reason, "retry_in": round(pause, 1)}
                log.warning("server_failed", extra=told)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            self._wake.clear()
            self._retry_at = None

    async def _stay_connected(self) -> str:
        """Connects, serves, and returns why that came to an end."""
        self._attempts += 1
        self._given_up = asyncio.get_running_loop().create_future()
        self._now(ServerState.CONNECTING, reason=self._status.reason)
        try:
            async with self._servers.connect(self.spec, within=self._limits.connect) as server:
                since = time.monotonic()
                self._server = server
                self._moved.set()
                try:
                    await self._refresh(server)
                    return await self._attend(server)
                finally:
                    self._server = None
                    if time.monotonic() - since > self._limits.heartbeat:
                        self._failures = 0
        except ToolscriptError as error:
            return error.message
        except Exception as error:  # whatever one server does must not reach the others
            log.exception("server_fault", extra={"server": self.spec.name})
            return f"{type(error).__name__}: {error}"

    async def _attend(self, server: ToolServer) -> str:
        lost = asyncio.ensure_future(server.wait_for_disconnect())
        changed = asyncio.ensure_future(server.wait_for_change())
        try:
            while True:
                awaited: set[asyncio.Future[Any]] = {lost, changed, self._given_up}
                done, _ = await asyncio.wait(
                    awaited, timeout=self._limits.heartbeat, return_when=asyncio.FIRST_COMPLETED
                )
                for ended in (lost, self._given_up):
                    if ended in done:
                        return ended.result()
                if changed in done:
                    await asyncio.sleep(self._limits.debounce)  # changes come in groups
                    changed = asyncio.ensure_future(server.wait_for_change())
                    await self._refresh(server)
                else:
                    await server.ping()
        finally:
            lost.cancel()
            changed.cancel()

    async def _refresh(self, server: ToolServer) -> SyncReport:
        """Asks, and brings the catalogue to the answer: one at a time, so that no older answer comes after a newer."""
        async with self._asking:
            try:
                async with asyncio.timeout(self._limits.connect):
                    listing = await server.list_items()
            except TimeoutError:
                raise Unavailable(f"it did not say what it offers within {self._limits.connect:g} s") from None
            self._require(server)
            report = await self._sync.run(listing.items, servers=[self.spec.name], progress=self._progress)
            self._require(server)
            self._report = report
            counts = Counter(item.type.value for item in listing.items)
            self._now(ServerState.READY, items=dict(counts), problems=tuple(listing.problems))
        self._sync.refine_soon()
        if listing.problems:
            log.warning("items_left_out", extra={"server": self.spec.name, "problems": list(listing.problems)})
        return report

    def _require(self, server: ToolServer) -> None:
        if self._server is not server:
            raise Unavailable("the connection was lost meanwhile")

    def _progress(self, done: int, total: int) -> None:
        if self._status.state is ServerState.CONNECTING:
            self._now(ServerState.CONNECTING, reason=f"indexing {done} of {total}")

    def _now(self, state: ServerState, **about: Any) -> None:
        self._status = ServerStatus(self.spec.name, self.spec.transport, state, **about)
        if state is not ServerState.CONNECTING:
            self.settled.set()
        self._moved.set()
        self._tell(self.status)

    def _pause(self) -> float:
        longest, first = self._limits.max_pause, self._limits.first_pause
        return float(min(longest, first * 2 ** min(self._failures - 1, 16)) * random.uniform(0.8, 1.2))  # noqa: S311
