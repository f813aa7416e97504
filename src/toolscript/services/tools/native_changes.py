"""Tells clients when a list of tools, prompts or resources changes, and when a resource does.

Each client has a stream. The stream holds each change once until the client has taken it: a slow client costs no
memory, and holds up nobody. Resources are followed on their server while some stream waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import NotFound, Quarantined
from toolscript.domain.native_names import wrap_uri
from toolscript.domain.requests import RequestContext, current_request, use_request
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.visibility import FindView
from toolscript.services.servers.gateway import Gateway
from toolscript.services.support.shares import MAX_SUBSCRIPTIONS, Shares
from toolscript.services.tools.native import NativeItems
from toolscript.services.tools.overview import ToolOverviews
from toolscript.services.tools.text_contents import FindTextContents

MAX_URIS = 100
MAX_WAITING = 1_000
# A stream ends then, and its client opens the next one: with a key that is no longer valid it cannot.
MAX_STREAM_SECONDS = 3_600.0
SUBSCRIBE_SECONDS = 10.0
DEBOUNCE_SECONDS = 0.2
# How often documents and knowledge are looked at, which other gateways and commands fill, too: two reads of 0.2 ms.
CONTENTS_SECONDS = 1.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0

log = logging.getLogger(__name__)


class ListKind(StrEnum):
    """The lists that clients hear of. Templates count as resources, as in the protocol."""

    TOOLS = "tools"
    PROMPTS = "prompts"
    RESOURCES = "resources"


ListKey = tuple[ListKind, str | None, str | None]
"""A list, and the profile and the tenant that decide what is in it."""


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """What a client wants to hear of: changed lists, and resources by their URIs on our server."""

    prompts: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()
    tools: bool = False

    @property
    def lists(self) -> list[ListKind]:
        """The lists with wanted changes."""
        wanted = {ListKind.TOOLS: self.tools, ListKind.PROMPTS: self.prompts, ListKind.RESOURCES: self.resources}
        return [kind for kind, is_wanted in wanted.items() if is_wanted]


@dataclass(frozen=True, slots=True)
class ListChanged:
    """A list is no longer what it was."""

    kind: ListKind


@dataclass(frozen=True, slots=True)
class ResourceChanged:
    """The contents of a resource are no longer what they were."""

    uri: str


NativeChange = ListChanged | ResourceChanged


class ChangeStream:
    """The changes that a client has not taken yet."""

    def __init__(self, honoured: ChangeFilter) -> None:
        self.honoured = honoured
        """What the client will hear of: not every server can be followed."""
        request = current_request()
        self._profile, self._tenant = request.profile, request.tenant
        self._waiting: dict[NativeChange, None] = {}
        self._has_news = asyncio.Event()
        self._is_closed = False

    @property
    def list_keys(self) -> list[ListKey]:
        """The lists that the client will hear of."""
        return [(kind, self._profile, self._tenant) for kind in self.honoured.lists]

    def deliver(self, change: NativeChange) -> None:
        """Adds a change; ends the stream of a client that takes none."""
        if len(self._waiting) >= MAX_WAITING:
            self.close()
        elif not self._is_closed:
            self._waiting[change] = None
            self._has_news.set()

    def close(self) -> None:
        """Ends the stream after what is waiting."""
        self._is_closed = True
        self._has_news.set()

    def __aiter__(self) -> ChangeStream:
        return self

    async def __anext__(self) -> NativeChange:
        while not self._waiting:
            if self._is_closed:
                raise StopAsyncIteration
            self._has_news.clear()
            await self._has_news.wait()
        change = next(iter(self._waiting))
        del self._waiting[change]
        return change


@dataclass(slots=True)
class _Followed:
    """A resource that some streams wait for. `is_followed` is set once its server has answered."""

    is_followed: asyncio.Future[bool]
    streams: set[ChangeStream] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


class NativeChanges:
    """Opens streams, and brings changes to them."""

    def __init__(
        self,
        snapshots: CatalogueSnapshots,
        gateway: Gateway,
        native: NativeItems,
        overviews: ToolOverviews,
        contents: FindTextContents,
        find_view: FindView,
    ) -> None:
        self._snapshots = snapshots
        self._gateway = gateway
        self._native = native
        self._overviews = overviews
        self._contents = contents
        self._find_view = find_view
        self.shares = Shares("subscriptions", MAX_SUBSCRIPTIONS)
        self._streams: set[ChangeStream] = set()
        self._followed: dict[str, _Followed] = {}
        self._has_changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._seen: dict[ListKey, object] = {}
        """What the lists that streams wait for had when they were last compared."""
        snapshots.watch(self.compare_lists)

    def compare_lists(self) -> None:
        """Compares the lists with what they were, in the background."""
        self._has_changed.set()

    @asynccontextmanager
    async def open(self, wanted: ChangeFilter) -> AsyncIterator[ChangeStream]:
        """A stream of what is wanted and can be followed. It ends after an hour, and when the gateway does. Raises
        Unavailable when too many are open, or too many of this caller."""
        holder = current_request().share_holder
        self.shares.take(holder)
        stream = ChangeStream(wanted)
        self._streams.add(stream)
        ending = asyncio.get_running_loop().call_later(MAX_STREAM_SECONDS, stream.close)
        uris = wanted.uris[:MAX_URIS]
        try:
            if stream.list_keys:
                await self._start_watching(stream)
            answers = await asyncio.gather(*(self._follow(uri, stream) for uri in uris))
            followed = tuple(uri for uri, is_followed in zip(uris, answers, strict=True) if is_followed)
            stream.honoured = replace(wanted, uris=followed)
            yield stream
        finally:
            ending.cancel()
            self.shares.give_back(holder)
            self._streams.discard(stream)
            for uri in uris:
                self._unfollow(uri, stream)
            if not self._streams and self._watching:
                self._watching.cancel()
                self._watching = None
                self._seen = {}

    def end_streams(self) -> None:
        """Ends all streams: clients open them again where they are served next."""
        for stream in self._streams:
            stream.close()

    async def close(self) -> None:
        """Ends all streams, and stops following."""
        self.end_streams()
        tasks = [followed.task for followed in self._followed.values()] + [self._watching]
        running = [task for task in tasks if task]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _start_watching(self, stream: ChangeStream) -> None:
        async with self._starting:
            for key in stream.list_keys:
                if key not in self._seen:
                    self._seen[key] = await self._read_list(*key)
            if self._watching is None:
                self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Compares the lists after every change of the catalogue, the profiles or the texts: most change no list."""
        while True:
            await self._wait_for_news()
            await asyncio.sleep(DEBOUNCE_SECONDS)
            self._has_changed.clear()
            try:
                keys = {key for stream in self._streams for key in stream.list_keys}
                current = {key: await self._read_list(*key) for key in keys}
            except Exception as error:  # noqa: BLE001  (whatever fails now is tried again)
                log.info("lists_not_compared", extra={"reason": f"{type(error).__name__}: {error}"})
                self._has_changed.set()
                await asyncio.sleep(FIRST_PAUSE_SECONDS)
                continue
            changed = {key for key, value in current.items() if self._seen.get(key, value) != value}
            self._seen |= current
            for stream in list(self._streams):
                for key in stream.list_keys:
                    if key in changed:
                        stream.deliver(ListChanged(key[0]))

    async def _wait_for_news(self) -> None:
        """Waits for a change of the catalogue or the profiles, or until there is a first text or none any more."""
        while not self._has_changed.is_set():
            keys = {key for stream in self._streams for key in stream.list_keys if key[0] is ListKind.TOOLS}
            current = {tenant: await self._contents.read(tenant) for tenant in {tenant for _, _, tenant in keys}}
            if any(seen[1] != current[key[2]] for key in keys if isinstance(seen := self._seen.get(key), tuple)):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(CONTENTS_SECONDS):
                    await self._has_changed.wait()

    async def _read_list(self, kind: ListKind, profile: str | None, tenant: str | None) -> object:
        """What the list has, in a form that can be compared."""
        context = RequestContext(profile=profile, tenant=tenant)
        with use_request(context):
            try:
                if kind is ListKind.TOOLS:
                    return await self._overviews.read(), await self._contents.read(tenant)
                view = await self._find_view(context)
            except NotFound:  # a new configuration has no such profile
                return None
        facts = await self._snapshots.current().facts()
        types = {ItemType.PROMPT} if kind is ListKind.PROMPTS else {ItemType.RESOURCE, ItemType.AGENT_SKILL}
        return frozenset(
            (i, each.digest)
            for i, each in facts.items.items()
            if each.type in types and not each.quarantine and view.shows(i)
        )

    async def _follow(self, uri: str, stream: ChangeStream) -> bool:
        """Adds the stream to the streams of the resource; returns whether its server reports changes."""
        try:
            item = await self._native.find_resource(uri)
        except (NotFound, Quarantined):
            return False
        followed = self._followed.get(uri)
        if followed is None:
            followed = self._followed[uri] = _Followed(asyncio.get_running_loop().create_future())
            followed.task = asyncio.create_task(self._keep_following(item, followed))
        followed.streams.add(stream)
        try:
            async with asyncio.timeout(SUBSCRIBE_SECONDS):
                is_followed = await asyncio.shield(followed.is_followed)
        except TimeoutError:
            is_followed = False
        if not is_followed:
            self._unfollow(uri, stream)
        return is_followed

    def _unfollow(self, uri: str, stream: ChangeStream) -> None:
        followed = self._followed.get(uri)
        if followed is None:
            return
        followed.streams.discard(stream)
        if not followed.streams:
            del self._followed[uri]
            if followed.task:
                followed.task.cancel()

    async def _keep_following(self, item: Item, followed: _Followed) -> None:
        """Follows the resource until cancelled, also after its server was lost; not if the server refuses at first."""
        pause, own_uri = FIRST_PAUSE_SECONDS, str((item.annotations or {})["uri"])

        def report(own_uri: str) -> None:
            for stream in list(followed.streams):
                stream.deliver(ResourceChanged(wrap_uri(item.server, own_uri)))

        def start() -> None:
            nonlocal pause
            pause = FIRST_PAUSE_SECONDS
            if followed.is_followed.done():
                report(own_uri)  # it may have changed while nobody followed it
            else:
                followed.is_followed.set_result(True)

        while True:
            try:
                await self._gateway.follow_resource(item, own_uri, on_start=start, on_update=report)
            except Exception as error:  # noqa: BLE001  (whatever fails later is tried again)
                log.info("resource_not_followed", extra={"server": item.server, "reason": str(error)})
                if not followed.is_followed.done():
                    followed.is_followed.set_result(False)
                    return
            await asyncio.sleep(pause)
            pause = min(MAX_PAUSE_SECONDS, 2 * pause)
