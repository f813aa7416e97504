"""One server of the gateway: connects to it, brings the catalogue to what it offers, watches it, reconnects."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from toolscript.domain.catalog import Item
from toolscript.domain.errors import ToolscriptError, Unavailable
from toolscript.domain.servers import ServerSpec, ServerState, ServerStatus
from toolscript.ports.servers import ToolServer, ToolServers
from toolscript.services.catalogue.indexing import SyncReport
from toolscript.services.catalogue.sync import Sync

NOT_CONNECTED = "no answer yet"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each thing may take or waits, in seconds."""

    connect: float = 30.0
    call: float = 60.0
    reconnect: float = 10.0
    """How long a call waits for a server that has to be connected again."""
    heartbeat: float = 30.0
    first_pause: float = 1.0
    """The pause after the first failed attempt to connect; it doubles up to `max_pause`."""
    max_pause: float = 60.0
    debounce: float = 0.2
    """How long after a server's notice of changes it is listed: notices come in groups."""
    poll: float = 1.0
    """How often the configuration is looked at."""


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What listing a server changed in the catalogue, or why it could not be listed."""

    name: str
    report: SyncReport | None = None
    reason: str | None = None


class _CatalogueFailed(Unavailable):
    """The catalogue could not take what the server lists: the store or the index failed, not the server."""


class ServerConnection:
    """Keeps one server connected until stopped. Errors of the server end up in its status, never in the caller."""

    def __init__(
        self,
        spec: ServerSpec,
        servers: ToolServers,
        sync: Sync | None,
        timeouts: Timeouts,
        report_status: Callable[[ServerStatus], None],
    ) -> None:
        self.spec = spec
        self.has_settled = asyncio.Event()
        """Set once the server is ready or has failed."""
        self._servers = servers
        self._sync = sync
        self._timeouts = timeouts
        self._report_status = report_status
        self._server: ToolServer | None = None
        self._report: SyncReport | None = None
        self._listing_lock = asyncio.Lock()
        self._abandoned: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._attempts = 0
        self._failures = 0
        self._failed_updates = 0
        """How often in a row the catalogue could not be brought to what the connected server lists."""
        self._retry_at: float | None = None
        self._retry_now = asyncio.Event()
        self._status_changed = asyncio.Event()
        self._status = ServerStatus(spec.name, spec.transport, ServerState.CONNECTING)
        self._task = asyncio.create_task(self._run(), name=f"connection to {spec.name}")

    @property
    def status(self) -> ServerStatus:
        """A server that is tried again after a failure stays failed until it is connected."""
        status, left = self._status, None
        if self._failures and self._server is None and status.state is not ServerState.READY:
            left = round(max(0.0, (self._retry_at or 0.0) - time.monotonic()), 1)
            status = replace(status, state=ServerState.FAILED)
        return replace(status, attempts=self._attempts, retry_in_seconds=left)

    @property
    def last_refresh(self) -> RefreshResult:
        """The result of the last listing, if there is a connection."""
        if self._server is None or self._report is None:
            return RefreshResult(self.spec.name, reason=self._status.reason or NOT_CONNECTED)
        return RefreshResult(self.spec.name, self._report)

    async def stop(self) -> None:
        """Ends the connection; returns when nothing of it is left."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        async with self._listing_lock:  # a refresh that somebody else began has ended when this returns
            pass

    async def wait_until_connected(self) -> ToolServer:
        """The live connection; without one, one attempt is made and awaited. Raises Unavailable with the reason."""
        is_connecting = self._status.state is ServerState.CONNECTING and not self._abandoned.done()
        awaited_attempt = self._attempts if is_connecting else self._attempts + 1
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeouts.reconnect):
                while self._server is None:
                    if self._status.state is ServerState.FAILED:
                        if self._attempts >= awaited_attempt:
                            break
                        self._retry_now.set()
                    self._status_changed.clear()
                    await self._status_changed.wait()
        if self._server is None:
            reason = self._status.reason or NOT_CONNECTED
            raise Unavailable(f"server {self.spec.name} is not available: {reason}", details={"server": self.spec.name})
        return self._server

    async def refresh(self) -> RefreshResult:
        """Lists the server again, if there is a connection."""
        server = self._server
        if server is None:
            return self.last_refresh
        try:
            report = await self._list(server)
        except Exception as error:  # noqa: BLE001  (a fault of one server must not reach the others)
            return RefreshResult(self.spec.name, reason=self._describe(error))
        return RefreshResult(self.spec.name, report)

    def abandon(self, server: ToolServer, reason: str) -> None:
        """Gives up that connection: a call has found it gone, perhaps before its end was noticed."""
        if self._server is server:
            self._server = None
            self._abandoned.set_result(reason)

    async def _run(self) -> None:
        while True:
            reason = await self._connect_and_serve()
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError  # a fault of the transport came first and hid it
            self._failures += 1
            pause = self._compute_pause(self._failures)
            self._retry_at = time.monotonic() + pause
            is_news = reason != self._status.reason or self._attempts == 1
            self._set_status(ServerState.FAILED, reason=reason)
            if is_news:
                about = {"server": self.spec.name, "reason": reason, "retry_in": round(pause, 1)}
                log.warning("server_failed", extra=about)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._retry_now.wait()
            self._retry_now.clear()
            self._retry_at = None

    async def _connect_and_serve(self) -> str:
        """Returns why the connection ended."""
        self._attempts += 1
        self._abandoned = asyncio.get_running_loop().create_future()
        self._set_status(ServerState.CONNECTING, reason=self._status.reason)
        try:
            async with self._servers.connect(self.spec, within=self._timeouts.connect) as server:
                since = time.monotonic()
                self._server = server
                self._status_changed.set()
                try:
                    await self._update_catalogue(server)
                    return await self._watch(server)
                finally:
                    self._server = None
                    if time.monotonic() - since > self._timeouts.heartbeat:
                        self._failures = 0
        except Exception as error:  # noqa: BLE001  (a fault of one server must not reach the others)
            return self._describe(error)

    async def _watch(self, server: ToolServer) -> str:
        """Lists the server again whenever it announces changes; returns why the connection ended."""
        lost = asyncio.ensure_future(server.wait_for_disconnect())
        changed = asyncio.ensure_future(server.wait_for_change())
        try:
            while True:
                awaited: set[asyncio.Future[Any]] = {lost, changed, self._abandoned}
                failed = self._failed_updates
                pause = self._compute_pause(failed) if failed else self._timeouts.heartbeat
                done, _ = await asyncio.wait(awaited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for ended in (lost, self._abandoned):
                    if ended in done:
                        return ended.result()
                if changed in done:
                    await asyncio.sleep(self._timeouts.debounce)
                    changed = asyncio.ensure_future(server.wait_for_change())
                    await self._update_catalogue(server)
                elif failed:
                    await self._update_catalogue(server)
                else:
                    await server.ping()
        finally:
            lost.cancel()
            changed.cancel()

    async def _update_catalogue(self, server: ToolServer) -> None:
        """Lists the server and syncs the catalogue. When the store or the index fails, the server can still be called:
        it stays connected, and `_watch` tries again."""
        try:
            await self._list(server)
            self._failed_updates = 0
        except _CatalogueFailed as error:
            if not self._failed_updates:
                log.warning("catalogue_not_updated", extra={"server": self.spec.name, "reason": error.message})
            self._failed_updates += 1
            before = self._status
            self._set_status(before.state, reason=error.message, items=before.items, problems=before.problems)

    async def _list(self, server: ToolServer) -> SyncReport:
        """Lists the server and syncs the catalogue; one at a time, so that no older listing replaces a newer one.
        Raises _CatalogueFailed when it is the catalogue that fails."""
        async with self._listing_lock:
            try:
                async with asyncio.timeout(self._timeouts.connect):
                    listing = await server.list_items()
            except TimeoutError:
                raise Unavailable(f"it did not list its tools within {self._timeouts.connect:g} s") from None
            self._require_current(server)
            try:
                report = await self._sync_items(listing.items)
            except Exception as error:
                raise _CatalogueFailed(f"its tools are not in the catalogue yet: {self._describe(error)}") from error
            self._require_current(server)
            self._report = report
            counts = Counter(item.type.value for item in listing.items)
            self._set_status(ServerState.READY, items=dict(counts), problems=tuple(listing.problems))
        if self._sync:
            self._sync.refinement.start_soon()
        if listing.problems:
            log.warning("items_left_out", extra={"server": self.spec.name, "problems": list(listing.problems)})
        return report

    async def _sync_items(self, items: Sequence[Item]) -> SyncReport:
        if self._sync is None:
            return SyncReport()
        return await self._sync.run(items, servers=[self.spec.name], progress=self._show_progress)

    def _require_current(self, server: ToolServer) -> None:
        if self._server is not server:
            raise Unavailable("the connection was lost meanwhile")

    def _show_progress(self, done: int, total: int) -> None:
        if self._status.state is ServerState.CONNECTING:
            self._set_status(ServerState.CONNECTING, reason=f"indexing {done} of {total}")

    def _set_status(self, state: ServerState, **about: Any) -> None:
        self._status = ServerStatus(self.spec.name, self.spec.transport, state, **about)
        if state is not ServerState.CONNECTING:
            self.has_settled.set()
        self._status_changed.set()
        self._report_status(self.status)

    def _compute_pause(self, failures: int) -> float:
        doubled = self._timeouts.first_pause * 2 ** min(failures - 1, 16)
        return float(min(self._timeouts.max_pause, doubled) * random.uniform(0.8, 1.2))  # noqa: S311

    def _describe(self, error: Exception) -> str:
        if isinstance(error, ToolscriptError):
            return error.message
        log.error("server_fault", extra={"server": self.spec.name}, exc_info=error)
        return f"{type(error).__name__}: {error}"
