"""One server of the gateway: connects to it, brings the catalogue to what it offers, watches it, reconnects.

A server that may sleep is connected only while it is used or has to be listed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from toolscript.domain.errors import LoginRequired, ToolscriptError, Unavailable
from toolscript.domain.limits import Limits
from toolscript.domain.servers import LogSource, ServerListing, ServerSpec, ServerState, ServerStatus
from toolscript.ports.servers import ToolServer, ToolServers
from toolscript.services.catalogue.indexing import MAX_KNOWN_ITEMS, SyncReport
from toolscript.services.catalogue.sync import Sync
from toolscript.services.servers.activity import ServerActivity

NOT_CONNECTED = "no answer yet"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What listing a server changed in the catalogue, or why it could not be listed."""

    name: str
    report: SyncReport | None = None
    reason: str | None = None


class _CatalogueFailed(Unavailable):
    """The catalogue could not take what the server lists: the store or the index failed, not the server."""


class ServerConnection:
    """Keeps one server connected until stopped, or while it is needed if it may sleep. Errors of the server end up in
    its status, never in the caller."""

    _server: ToolServer | None = None
    _report: SyncReport | None = None
    _failure: str | None = None
    """Why the last attempt to connect failed."""
    _uses = 0
    _was_used = False
    """Whether somebody has used the present connection."""
    _is_wanted = False
    """Whether somebody has asked for the next connection, without using it."""
    _was_connected = False
    """Whether the last attempt to connect succeeded."""
    _idle_since = 0.0
    _idle_timer: asyncio.TimerHandle | None = None
    _is_idle = False
    """Whether the connection is ended because nobody needs it."""
    _attempts = 0
    _failures = 0
    _failed_updates = 0
    """How often in a row the catalogue could not be brought to what the connected server lists."""
    _needs_login = False
    _retry_at: float | None = None
    _task: asyncio.Task[None] | None = None

    def __init__(
        self,
        spec: ServerSpec,
        servers: ToolServers,
        sync: Sync | None,
        limits: Limits,
        report_status: Callable[[ServerStatus], None],
        slots: asyncio.Semaphore,
        listed: Mapping[str, int] | None = None,
        activity: ServerActivity | None = None,
        stopped: str | None = None,
    ) -> None:
        """`slots` bounds how many servers are started at a time only to be listed. `listed` counts the items of each
        type in the catalogue, if the server listed them: a lazy server then sleeps until it is used. With `stopped`, a
        reason, the server is not started."""
        self.spec = spec
        self.has_settled = asyncio.Event()
        """Set once the server is ready, asleep, or has failed, and when the connection is stopped."""
        self._servers = servers
        self._sync = sync
        self._limits = limits
        self._report_status = report_status
        self._listing_lock = asyncio.Lock()
        self._abandoned: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._can_sleep = spec.is_lazy or spec.idle_seconds is not None
        self._slots = slots
        self.activity = activity or ServerActivity()
        self._must_list = not (spec.is_lazy and listed is not None)
        """Whether it is to be connected although nobody uses it."""
        self._is_listed = listed is not None
        self._contents: dict[str, Any] = {"items": dict(listed or {})}
        """The items and problems of its last listing, for its status."""
        self._is_used = asyncio.Event()
        self._woken = asyncio.Event()
        self._retry_now = asyncio.Event()
        self._status_changed = asyncio.Event()
        self._status = ServerStatus(spec.name, spec.transport, ServerState.CONNECTING)
        if stopped is None:
            self._begin()
        else:
            self._set_status(ServerState.STOPPED, reason=stopped, **self._contents)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"connection to {self.spec.name}")

    @property
    def status(self) -> ServerStatus:
        """A server that is tried again after a failure stays failed until it is connected or sleeps."""
        status, left = self._status, None
        has_failed = status.state in {ServerState.CONNECTING, ServerState.FAILED}
        if self._failures and self._server is None and has_failed:
            left = round(max(0.0, (self._retry_at or 0.0) - time.monotonic()), 1)
            status = replace(status, state=ServerState.FAILED)
        needs_login = self._needs_login and not self.is_stopped
        status = replace(status, attempts=self._attempts, retry_in_seconds=left, needs_login=needs_login)
        return self.activity.add_to(replace(status, login_per_user=self.spec.oauth.per_user))

    @property
    def last_refresh(self) -> RefreshResult:
        """The result of the last listing, if there is a connection or the server sleeps."""
        is_current = self._server is not None or self.is_asleep
        if not is_current or self._report is None:
            return RefreshResult(self.spec.name, reason=self._status.reason or NOT_CONNECTED)
        return RefreshResult(self.spec.name, self._report)

    @property
    def is_asleep(self) -> bool:
        """Whether the next use has to start the server."""
        return self._status.state is ServerState.ASLEEP or self._is_idle

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped the server: it is not used until somebody starts it."""
        return self._status.state is ServerState.STOPPED

    async def stop(self) -> None:
        """Ends the connection; returns when nothing of it is left."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        async with self._listing_lock:  # a refresh that somebody else began has ended when this returns
            self.has_settled.set()

    async def halt(self, reason: str) -> None:
        """Stops the server until it is started. Calls that wait for it, or are running, fail."""
        self._set_status(ServerState.STOPPED, reason=reason, **self._contents)
        self.activity.add_line(reason, LogSource.GATEWAY)
        await self.stop()
        self._set_status(ServerState.STOPPED, reason=reason, **self._contents)  # its last words changed it

    def start(self) -> None:
        """Starts the server now: one that is stopped or asleep, or that waits after a failed attempt."""
        if self.is_stopped:
            self._start_again()
        elif self.is_asleep or self.status.state is ServerState.FAILED:
            self._is_wanted = self._must_list = True
            self._woken.set()
            self._retry_now.set()

    async def restart(self, reason: str) -> None:
        """Stops the server and starts it. Calls that wait for it go on waiting, running calls fail."""
        was_connected = self._server is not None
        await self.stop()
        if was_connected:
            self.activity.note_lost(reason)
        self._start_again()

    def _start_again(self) -> None:
        self._is_wanted = self._must_list = True
        self._failures = self._failed_updates = 0
        self._failure = self._retry_at = None
        self._is_idle = False
        self._retry_now.clear()
        self._set_status(ServerState.CONNECTING)
        self._begin()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[ToolServer]:
        """The live connection. It does not fall asleep during the block. Without a connection, one attempt is made and
        awaited. Raises Unavailable with the reason."""
        self._uses += 1
        self._was_used = True
        self._is_used.set()
        self._woken.set()
        try:
            yield await self._wait_until_connected()
        finally:
            self._uses -= 1
            if not self._uses:
                self._is_used.clear()
                self._watch_idle_time()

    async def _wait_until_connected(self) -> ToolServer:
        is_connecting = self._status.state is ServerState.CONNECTING and not self._abandoned.done()
        awaited_attempt = self._attempts if is_connecting else self._attempts + 1
        # A server that sleeps or was never connected is expected to start now, which may take as long as any start.
        is_starting = self._can_sleep or not self.has_settled.is_set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.connect if is_starting else self._limits.reconnect):
                while self._server is None and not self.is_stopped:
                    if self._status.state is ServerState.FAILED:
                        if self._attempts >= awaited_attempt:
                            break
                        self._retry_now.set()
                    self._status_changed.clear()
                    await self._status_changed.wait()
        if self._server is None:
            reason = self._status.reason or NOT_CONNECTED
            kind = LoginRequired if self._needs_login else Unavailable
            raise kind(f"server {self.spec.name} is not available: {reason}", details={"server": self.spec.name})
        return self._server

    async def refresh(self) -> RefreshResult:
        """Lists the server again, if there is a connection or the server sleeps."""
        server = self._server
        if server is None:
            return await self._wake_to_list() if self.is_asleep else self.last_refresh
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

    def reconnect(self, reason: str) -> None:
        """Gives up the connection, if there is one, and connects again at once."""
        if self._server is not None:
            self.abandon(self._server, reason)
        self._retry_now.set()

    async def _wake_to_list(self) -> RefreshResult:
        """Starts the server, lists it, and lets it sleep again unless somebody uses it."""
        self._report, self._must_list = None, True
        self._woken.set()
        attempts, failed_updates = self._attempts, self._failed_updates
        while self._must_list and self._failed_updates == failed_updates:
            if self.is_stopped or (self._status.state is ServerState.FAILED and self._attempts > attempts):
                break
            self._status_changed.clear()
            await self._status_changed.wait()
        return self.last_refresh

    def _watch_idle_time(self) -> None:
        """Starts to count the time without use; after the idle time the server is stopped."""
        self._idle_since = time.monotonic()
        if self.spec.idle_seconds is not None and self._server is not None and self._idle_timer is None:
            self._check_idle_later(self.spec.idle_seconds)

    def _check_idle_later(self, seconds: float) -> None:
        self._idle_timer = asyncio.get_running_loop().call_later(seconds, self._check_idle)

    def _check_idle(self) -> None:
        self._idle_timer = None
        server, limit = self._server, self.spec.idle_seconds
        if server is None or limit is None or self._uses:
            return
        left = self._idle_since + limit - time.monotonic()
        if left > 0 or self._must_list:
            self._check_idle_later(left if left > 0 else limit)
        else:
            self.abandon(server, "nobody used it")
            self._is_idle = True

    async def _sleep(self) -> None:
        """Waits until the server has to be started."""
        self._failures = 0
        self._set_status(ServerState.ASLEEP, reason=self._failure, **self._contents)
        while not self._uses and not self._must_list:
            self._woken.clear()
            await self._woken.wait()

    @asynccontextmanager
    async def _take_slot(self) -> AsyncIterator[None]:
        """Waits for a slot, or until somebody uses the server."""
        slot, used = asyncio.ensure_future(self._slots.acquire()), asyncio.ensure_future(self._is_used.wait())
        try:
            await asyncio.wait({slot, used}, return_when=asyncio.FIRST_COMPLETED)
            yield
        finally:
            used.cancel()
            if not slot.cancel():
                self._slots.release()

    async def _run(self) -> None:
        while True:
            if self._can_sleep and not self._uses and not self._must_list:
                await self._sleep()
            async with AsyncExitStack() as slot:
                if self.spec.is_lazy and not self._uses:
                    await slot.enter_async_context(self._take_slot())
                reason = await self._connect_and_serve(slot)
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError  # a fault of the transport came first and hid it
            was_idle, self._is_idle = self._is_idle, False
            if was_idle:
                continue
            if self._was_connected:
                self.activity.note_lost(reason)
            # A lazy server that was listed once is started again only when it is used.
            self._must_list = not (self.spec.is_lazy and self._is_listed)
            self._failures += 1
            # A login is noticed when it happens: until then there is no point in trying often.
            pause = self._limits.max_pause if self._needs_login else self._compute_pause(self._failures)
            self._retry_at = time.monotonic() + pause
            is_news = reason != self._status.reason or self._attempts == 1
            self._failure = reason
            self._set_status(ServerState.FAILED, reason=reason)
            if is_news:
                about = {"server": self.spec.name, "reason": reason, "retry_in": round(pause, 1)}
                log.warning("server_failed", extra=about)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._retry_now.wait()
            self._retry_now.clear()
            self._retry_at = None

    async def _connect_and_serve(self, slot: AsyncExitStack) -> str:
        """Returns why the connection ended. Closes the slot when the server is listed and used."""
        self._attempts += 1
        self._was_connected = False
        is_wanted, self._is_wanted = self._is_wanted, False
        self._abandoned = asyncio.get_running_loop().create_future()
        self._set_status(ServerState.CONNECTING, reason=self._status.reason)
        connecting = self._servers.connect(self.spec, within=self._limits.connect, on_log=self.activity.add_line)
        try:
            async with connecting as server:
                since = time.monotonic()
                self._server, self._needs_login, self._was_connected = server, False, True
                self._was_used = self._uses > 0 or is_wanted
                self.activity.note_connected()
                self._status_changed.set()
                try:
                    await self._update_catalogue(server)
                    if self.spec.is_lazy and not self._was_used and not self._must_list:
                        self._is_idle = True
                        return "it was listed, and nobody uses it"
                    await slot.aclose()
                    self._watch_idle_time()
                    return await self._watch(server)
                finally:
                    self._server = None
                    if time.monotonic() - since > self._limits.heartbeat:
                        self._failures = 0
        except Exception as error:  # noqa: BLE001  (a fault of one server must not reach the others)
            self._needs_login = isinstance(error, LoginRequired)
            return self._describe(error)

    async def _watch(self, server: ToolServer) -> str:
        """Lists the server again whenever it announces changes; returns why the connection ended."""
        lost = asyncio.ensure_future(server.wait_for_disconnect())
        changed = asyncio.ensure_future(server.wait_for_change())
        try:
            while True:
                awaited: set[asyncio.Future[Any]] = {lost, changed, self._abandoned}
                failed = self._failed_updates
                pause = self._compute_pause(failed) if failed else self._limits.heartbeat
                done, _ = await asyncio.wait(awaited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for ended in (lost, self._abandoned):
                    if ended in done:
                        return ended.result()
                if changed in done:
                    await asyncio.sleep(self._limits.debounce)
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
                async with asyncio.timeout(self._limits.connect):
                    listing = await server.list_items()
            except TimeoutError:
                raise Unavailable(f"it did not list its tools within {self._limits.connect:g} s") from None
            self._require_current(server)
            try:
                report = await self._sync_items(listing)
            except Exception as error:
                raise _CatalogueFailed(f"its tools are not in the catalogue yet: {self._describe(error)}") from error
            self._require_current(server)
            self._report = report
            counts = Counter(item.type.value for item in listing.items)
            problems = [*listing.problems]
            if report.left_out:
                problems.append(
                    f"it has offered more than {MAX_KNOWN_ITEMS} different tools, prompts and resources: "
                    f"{report.left_out} new ones are left out"
                )
            self._contents = {"items": dict(counts), "problems": tuple(problems)}
            self._is_listed, self._must_list, self._failure = True, False, None
            self._set_status(ServerState.READY, **self._contents)
        if self._sync:
            self._sync.start_model_work()
        if problems:
            log.warning("items_left_out", extra={"server": self.spec.name, "problems": problems})
        return report

    async def _sync_items(self, listing: ServerListing) -> SyncReport:
        if self._sync is None:
            return SyncReport()
        return await self._sync.run(
            listing.items,
            servers=[self.spec.name],
            policy=self.spec.trust,
            approved=listing.approved,
            progress=self._show_progress,
        )

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
        doubled = self._limits.first_pause * 2 ** min(failures - 1, 16)
        return float(min(self._limits.max_pause, doubled) * random.uniform(0.8, 1.2))  # noqa: S311

    def _describe(self, error: Exception) -> str:
        if isinstance(error, ToolscriptError):
            return error.message
        log.error("server_fault", extra={"server": self.spec.name}, exc_info=error)
        return f"{type(error).__name__}: {error}"
