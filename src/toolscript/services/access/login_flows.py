"""Logins that a person begins on a page of the gateway and finishes in the same browser, while the gateway waits.

`toolscript login` waits in one process for one browser. Here the address to open and the redirect are two requests, and
anybody can send the second one: it counts only with the state of the login and the secret of the browser that began it.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from toolscript.domain.errors import Conflict, Forbidden, NotFound, TimedOut, Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.logins import Login, LoginName, name_login
from toolscript.domain.servers import ServerSpec
from toolscript.services.access.logins import Logins, require_login
from toolscript.services.support.server_changes import ServerChanges, describe_login

# How long the requests to the authorization server may take, before and after a person logs in.
START_SECONDS = 60.0
FINISH_SECONDS = 90.0
MAX_FLOWS = 20


class WaitingBrowser:
    """The browser of a person who is sent to an address by one request, and comes back with another."""

    def __init__(self, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri
        loop = asyncio.get_running_loop()
        self.url: asyncio.Future[str] = loop.create_future()
        self.address: asyncio.Future[str] = loop.create_future()

    async def visit(self, url: str) -> str:
        """Hands the URL out and waits for the address. Raises TimedOut."""
        self.url.set_result(url)
        try:
            async with asyncio.timeout(current_limits().login):
                return await self.address
        except TimeoutError:
            raise TimedOut(f"nobody logged in within {current_limits().login:g} s: begin again") from None


@dataclass(frozen=True, slots=True)
class BegunLogin:
    """A login that waits for its person. The secret is for the browser that began it."""

    server: str
    url: str
    state: str
    secret: str


@dataclass(frozen=True, slots=True)
class _Flow:
    begun: BegunLogin
    name: LoginName
    browser: WaitingBrowser
    task: asyncio.Task[Login]


class LoginFlows:
    """The logins that are under way, by their states."""

    def __init__(self, logins: Logins, changes: ServerChanges) -> None:
        self._logins = logins
        self._changes = changes
        self._flows: dict[str, _Flow] = {}

    async def begin(self, spec: ServerSpec, redirect_uri: str) -> BegunLogin:
        """Finds out where the person logs in. A login that is under way at the same server ends. Raises Invalid for a
        server that has no login, and what `AuthorizationServers.authorize` raises."""
        require_login(spec)
        browser = WaitingBrowser(redirect_uri)
        task = asyncio.create_task(self._log_in(spec, browser), name=f"login at {spec.name}")
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody asks for it
        awaited: set[asyncio.Future[Any]] = {browser.url, task}
        await asyncio.wait(awaited, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not browser.url.done():
            task.cancel()
            if task.done() and not task.cancelled():
                task.result()
            raise Unavailable(f"the authorization server of {spec.name} did not answer within {START_SECONDS:g} s")
        url, name = browser.url.result(), name_login(spec)
        state = parse_qs(urlsplit(url).query)["state"][0]
        begun = BegunLogin(spec.name, url, state, secrets.token_urlsafe(32))
        for flow in [other for other in self._flows.values() if other.name == name]:
            self._end(flow)
        while len(self._flows) >= MAX_FLOWS:
            # A user who begins many ends their own first, not those of others.
            waiting = [*self._flows.values()]
            self._end(next((other for other in waiting if other.name.user == name.user), waiting[0]))
        self._flows[state] = flow = _Flow(begun, name, browser, task)
        task.add_done_callback(lambda _: self._flows.pop(state, None) if self._flows.get(state) is flow else None)
        return begun

    async def finish(self, address: str, secret: str) -> tuple[str, Login]:
        """Takes the address that the browser was sent back to; returns the server's name and the login when the tokens
        are stored. Raises NotFound for an address of no login that is under way, Forbidden for another browser than the
        one that began it, Conflict when another login or the end of the gateway ends this one meanwhile, TimedOut, and
        what `AuthorizationServers.authorize` raises."""
        state = parse_qs(urlsplit(address).query).get("state", [""])[0]
        flow = self._flows.get(state)
        if flow is None:
            raise NotFound(
                "no login waits for this address: it was finished already, took too long, or another one was begun. "
                "Begin again"
            )
        if not secrets.compare_digest(secret.encode(), flow.begun.secret.encode()):
            raise Forbidden("this login was begun in another browser: begin it again in this one")
        if not flow.browser.address.done():
            flow.browser.address.set_result(address)
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                return flow.begun.server, await asyncio.shield(flow.task)
        except TimeoutError:
            raise TimedOut(f"the authorization server did not answer within {FINISH_SECONDS:g} s") from None
        except asyncio.CancelledError:
            if not flow.task.cancelled() or _is_cancelled():
                raise
            raise Conflict(
                f"another login at {flow.begun.server} was begun meanwhile, or the gateway is stopping: use the page "
                "that was opened last, or begin again"
            ) from None

    async def close(self) -> None:
        """Ends all logins that wait."""
        tasks = [flow.task for flow in self._flows.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _log_in(self, spec: ServerSpec, browser: WaitingBrowser) -> Login:
        # Runs in the context of the request that begins it: the redirect has no key, and so no caller.
        with self._changes.record("log in", spec.name, describe_login(spec.user)):
            return await self._logins.log_in(spec, browser)

    def _end(self, flow: _Flow) -> None:
        self._flows.pop(flow.begun.state, None)
        flow.task.cancel()


def _is_cancelled() -> bool:
    """Whether somebody cancels the current task itself, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
