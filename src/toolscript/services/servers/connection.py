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
from dataclasses import dataclass, field
from typing import Any

from toolscript.domain.errors import LoginRequired, ToolscriptError, Unavailable
from toolscript.domain.limits import Limits
from toolscript.domain.servers import LogSource, ServerSpec, ServerState, ServerStatus
from toolscript.ports.servers import ToolServer, ToolServers
from toolscript.services.catalogue.indexing import SyncReport
from toolscript.services.catalogue.sync import Sync
from toolscript.services.catalogue.tool_overrides import attach_overrides
from toolscript.services.servers.activity import ServerActivity
from toolscript.services.servers.phases import Phase

NOT_CONNECTED = "no answer yet"
CLOSED = "its connection was closed, because its entry was changed or removed, or the gateway is stopping"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What listing a server changed in the catalogue, or why it could not be listed."""

    name: str
    report: SyncReport | None = None
    reason: str | None = None


class _CatalogueFailed(Unavailable):
    """The catalogue could not take what the server lists: the store or the index failed, not the server."""


@dataclass(eq=False, slots=True)
class _ConnectionAttempt:
    """One attempt to connect, and the connection if it succeeds."""

    number: int
    given_up: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Why it was given up, where the server did not end it."""
    server: ToolServer | None = None


class ServerConnection:
    """Keeps one server connected until stopped, or while it is needed if it may sleep. Errors of the server end up in
    its status, never in the caller. `Phase` has a drawing of what happens to it."""

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
        self._slots = slots
        self.activity = activity or ServerActivity()
        self._contents: dict[str, Any] = {} if listed is None else {"items": dict(listed)}
        """The items and problems of its last listing, for its status; empty if it was never listed."""
        self._listing_report: SyncReport | None = None
        self._must_list = not (spec.is_lazy and listed is not None)
        """Whether it is to be connected although nobody uses it."""
        self._is_requested = False
        """Whether somebody has asked for the connection, or has used it: the current one, or else the next."""
        self._retries_at_once = False
        self._uses = 0
        self._idle_since = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._failures = 0
        self._failure: str | None = None
        """Why the last attempt to connect failed."""
        self._failed_updates = 0
        """How often in a row the catalogue could not be brought to what the connected server lists."""
        self._needs_login = False
        self._retry_at = 0.0
        self._changed = asyncio.Event()
        """Wakes those who wait for a phase, a use or a request."""
        self._attempt = _ConnectionAttempt(0)
        self._phase = Phase.CONNECTING
        self._reason: str | None = None
        self._task: asyncio.Task[None] | None = None
        if stopped is None:
            self._begin()
        else:
            self._enter(Phase.STOPPED, stopped)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"connection to {self.spec.name}")

    def _enter(self, phase: Phase, reason: str | None = None) -> None:
        self._phase = phase
        self._is_requested = self._is_requested and phase not in {Phase.UNUSED, Phase.FAILED}
        if phase.is_public:
            self._report(reason)
        self._changed.set()

    def _report(self, reason: str | None) -> None:
        self._reason = reason
        if self._phase not in {Phase.CONNECTING, Phase.LISTING}:
            self.has_settled.set()
        self._changed.set()
        self._report_status(self.status)

    async def _wait_until(self, is_true: Callable[[], object]) -> None:
        while not is_true():
            self._changed.clear()
            await self._changed.wait()

    @property
    def _server(self) -> ToolServer | None:
        return self._attempt.server if self._phase in {Phase.LISTING, Phase.READY} else None

    @property
    def _is_needed(self) -> bool:
        can_sleep = self.spec.is_lazy or self.spec.idle_seconds is not None
        return not can_sleep or bool(self._uses) or self._must_list

    @property
    def status(self) -> ServerStatus:
        """A server that is tried again after a failure stays failed until it is connected or sleeps."""
        state, left = self._phase.state, None
        has_failed = state in {ServerState.CONNECTING, ServerState.FAILED}
        contents = {} if has_failed else self._contents
        if self._failures and self._server is None and has_failed:
            state, left = ServerState.FAILED, round(max(0.0, self._retry_at - time.monotonic()), 1)
        status = ServerStatus(
            self.spec.name,
            self.spec.transport,
            state,
            self._reason,
            **contents,
            attempts=self._attempt.number,
            retry_in_seconds=left,
            needs_login=self._needs_login and not self.is_stopped,
            login_per_user=self.spec.oauth.per_user,
            sandbox=self.spec.sandbox.summary if self.spec.sandbox else None,
        )
        return self.activity.add_to(status)

    @property
    def last_refresh(self) -> RefreshResult:
        """The result of the last listing, if there is a connection or the server sleeps."""
        is_current = self._server is not None or self.is_asleep
        if not is_current or self._listing_report is None:
            return RefreshResult(self.spec.name, reason=self._reason or NOT_CONNECTED)
        return RefreshResult(self.spec.name, self._listing_report)

    @property
    def is_asleep(self) -> bool:
        """Whether the next use has to start the server."""
        return self._phase in {Phase.ASLEEP, Phase.UNUSED}

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped the server: it is not used until somebody starts it."""
        return self._phase is Phase.STOPPED

    async def stop(self) -> None:
        """Ends the connection for good; returns when nothing of it is left. Those who wait for it get an error."""
        self._is_closed, self._reason = True, CLOSED
        self._changed.set()
        await self._end()

    async def _end(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        async with self._listing_lock:  # a refresh that somebody else began has ended when this returns
            self.has_settled.set()

    async def halt(self, reason: str) -> None:
        """Stops the server until it is started. Calls that wait for it, or are running, fail."""
        self._enter(Phase.STOPPED, reason)
        self.activity.add_line(reason, LogSource.GATEWAY)
        await self._end()

    def start(self) -> None:
        """Starts the server now: one that is stopped or asleep, or that waits after a failed attempt. A lazy server
        that is being connected stays awake."""
        self._is_requested = True
        if self.is_stopped:
            self._start_again()
        elif self.is_asleep or self.status.state is ServerState.FAILED:
            self._must_list = self._retries_at_once = True
            self._changed.set()

    async def restart(self, reason: str) -> None:
        """Stops the server and starts it. Calls that wait for it go on waiting, running calls fail."""
        was_connected = self._server is not None
        await self._end()
        if was_connected:
            self.activity.note_lost(reason)
        self._start_again()

    def _start_again(self) -> None:
        self._is_requested = self._must_list = True
        self._retries_at_once = False
        self._failures = self._failed_updates = 0
        self._failure, self._retry_at = None, 0.0
        self._enter(Phase.CONNECTING)
        self._begin()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[ToolServer]:
        """The live connection. It does not fall asleep during the block. Without a connection, one attempt is made and
        awaited. Raises Unavailable with the reason."""
        self._uses += 1
        self._is_requested = self._is_requested or self._server is not None
        self._changed.set()
        try:
            yield await self._wait_until_connected()
        finally:
            self._uses -= 1
            if not self._uses:
                self._watch_idle_time()

    async def _wait_until_connected(self) -> ToolServer:
        awaited_attempt = self._attempt.number + (self._phase not in {Phase.CONNECTING, Phase.LISTING})
        # A server that sleeps or was never connected is expected to start now, which may take as long as any start.
        is_starting = self.spec.is_lazy or self.spec.idle_seconds is not None or not self.has_settled.is_set()

        def has_ended() -> bool:
            if self._phase is Phase.FAILED:
                if self._attempt.number >= awaited_attempt:
                    return True
                self._retry()
            return self._server is not None or self.is_stopped or self._is_closed

        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.connect if is_starting else self._limits.reconnect):
                await self._wait_until(has_ended)
        server = self._server
        if server is None:
            reason = self._reason or NOT_CONNECTED
            kind = LoginRequired if self._needs_login else Unavailable
            raise kind(f"server {self.spec.name} is not available: {reason}", details={"server": self.spec.name})
        return server

    def _retry(self) -> None:
        if not self._retries_at_once:
            self._retries_at_once = True
            self._changed.set()

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

    def abandon(self, server: ToolServer, reason: str, phase: Phase = Phase.LOST) -> None:
        """Gives up that connection: a call has found it gone, perhaps before its end was noticed."""
        if self._server is server:
            self._enter(phase)
            self._attempt.given_up.set_result(reason)

    def reconnect(self, reason: str) -> None:
        """Gives up the connection, if there is one, and connects again at once."""
        if self._server is not None:
            self.abandon(self._server, reason)
        self._retry()

    async def _wake_to_list(self) -> RefreshResult:
        """Starts the server, lists it, and lets it sleep again unless somebody uses it."""
        self._listing_report, self._must_list = None, True
        self._changed.set()
        attempts, failed_updates = self._attempt.number, self._failed_updates

        def has_ended() -> bool:
            if not self._must_list or self._failed_updates != failed_updates or self.is_stopped or self._is_closed:
                return True
            return self._phase is Phase.FAILED and self._attempt.number > attempts

        await self._wait_until(has_ended)
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
            self.abandon(server, "nobody used it", Phase.UNUSED)

    @asynccontextmanager
    async def _take_slot(self) -> AsyncIterator[None]:
        """Waits for a slot, or until somebody uses the server."""
        slot = asyncio.ensure_future(self._slots.acquire())
        used = asyncio.ensure_future(self._wait_until(lambda: self._uses))
        try:
            await asyncio.wait({slot, used}, return_when=asyncio.FIRST_COMPLETED)
            yield
        finally:
            used.cancel()
            if not slot.cancel():
                self._slots.release()

    async def _run(self) -> None:
        while True:
            if not self._is_needed:
                self._failures = 0
                self._enter(Phase.ASLEEP, self._failure)
                await self._wait_until(lambda: self._is_needed)
            async with AsyncExitStack() as slot:
                if self.spec.is_lazy and not self._uses:
                    await slot.enter_async_context(self._take_slot())
                reason = await self._connect_and_serve(slot)
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError  # a fault of the transport came first and hid it
            if self._phase is Phase.UNUSED:
                continue
            if self._attempt.server:
                self.activity.note_lost(reason)
            # A lazy server that was listed once is started again only when it is used.
            self._must_list = not (self.spec.is_lazy and self._contents)
            self._failures += 1
            # A login is noticed when it happens: until then there is no point in trying often.
            pause = self._limits.max_pause if self._needs_login else self._compute_pause(self._failures)
            self._retry_at = time.monotonic() + pause
            is_news = reason != self._reason or self._attempt.number == 1
            self._failure = reason
            self._enter(Phase.FAILED, reason)
            if is_news:
                about = {"server": self.spec.name, "reason": reason, "retry_in": round(pause, 1)}
                log.warning("server_failed", extra=about)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wait_until(lambda: self._retries_at_once)
            self._retries_at_once, self._retry_at = False, 0.0

    async def _connect_and_serve(self, slot: AsyncExitStack) -> str:
        """Returns why the connection ended. Closes the slot when the server is listed and used."""
        attempt = self._attempt = _ConnectionAttempt(self._attempt.number + 1)
        self._enter(Phase.CONNECTING, self._reason)
        connecting = self._servers.connect(self.spec, within=self._limits.connect, on_log=self.activity.add_line)
        try:
            async with connecting as server:
                since = time.monotonic()
                attempt.server = server
                self._is_requested = self._is_requested or self._uses > 0
                self._needs_login = False
                self.activity.note_connected()
                self._enter(Phase.LISTING)
                try:
                    await self._update_catalogue(server)
                    if self.spec.is_lazy and not self._is_requested and not self._must_list and self._server:
                        self._enter(Phase.UNUSED)
                        return "it was listed, and nobody uses it"
                    await slot.aclose()
                    self._watch_idle_time()
                    return await self._watch(server)
                finally:
                    if self._server:
                        self._enter(Phase.LOST)
                    if time.monotonic() - since > self._limits.heartbeat:
                        self._failures = 0
        except Exception as error:  # noqa: BLE001  (a fault of one server must not reach the others)
            self._needs_login = isinstance(error, LoginRequired)
            return attempt.given_up.result() if attempt.given_up.done() else self._describe(error)

    async def _watch(self, server: ToolServer) -> str:
        """Lists the server again whenever it announces changes; returns why the connection ended."""
        lost = asyncio.ensure_future(server.wait_for_disconnect())
        changed = asyncio.ensure_future(server.wait_for_change())
        try:
            while True:
                awaited: set[asyncio.Future[Any]] = {lost, changed, self._attempt.given_up}
                failed = self._failed_updates
                pause = self._compute_pause(failed) if failed else self._limits.heartbeat
                done, _ = await asyncio.wait(awaited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for ended in (lost, self._attempt.given_up):
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
            if self._server is server:
                self._report(error.message)

    async def _list(self, server: ToolServer) -> SyncReport:
        """Lists the server and syncs the catalogue; one at a time, so that no older listing replaces a newer one.
        Raises _CatalogueFailed when it is the catalogue that fails."""
        async with self._listing_lock:
            try:
                async with asyncio.timeout(self._limits.connect):
                    listing = attach_overrides(await server.list_items(), self.spec.tools)
            except TimeoutError:
                raise Unavailable(f"it did not list its tools within {self._limits.connect:g} s") from None
            self._require_current(server)
            try:
                report = (
                    await self._sync.run(
                        listing.items,
                        servers=[self.spec.name],
                        policy=self.spec.trust,
                        approved=listing.approved,
                        progress=self._show_progress,
                    )
                    if self._sync
                    else SyncReport()
                )
            except Exception as error:
                raise _CatalogueFailed(f"its tools are not in the catalogue yet: {self._describe(error)}") from error
            self._require_current(server)
            self._listing_report = report
            counts = Counter(item.type.value for item in listing.items)
            described = (*listing.problems, *report.problems)
            problems = [problem.encode(errors="backslashreplace").decode() for problem in described]
            self._contents = {"items": dict(counts), "problems": tuple(problems)}
            self._must_list, self._failure = False, None
            self._enter(Phase.READY)
        if self._sync:
            self._sync.start_model_work()
        if problems:
            log.warning("items_left_out", extra={"server": self.spec.name, "problems": problems})
        return report

    def _require_current(self, server: ToolServer) -> None:
        if self._server is not server:
            raise Unavailable("the connection was lost meanwhile")

    def _show_progress(self, done: int, total: int) -> None:
        if self._phase is Phase.LISTING:
            self._report(f"indexing {done} of {total}")

    def _compute_pause(self, failures: int) -> float:
        doubled = self._limits.first_pause * 2 ** min(failures - 1, 16)
        return float(min(self._limits.max_pause, doubled) * random.uniform(0.8, 1.2))  # noqa: S311

    def _describe(self, error: Exception) -> str:
        if isinstance(error, ToolscriptError):
            return error.message
        log.error("server_fault", extra={"server": self.spec.name}, exc_info=error)
        return f"{type(error).__name__}: {error}"
