"""Prompts, resources and agent skills for clients that use MCP's own requests: lists of them, and what their servers
answer.

Lists come from the catalogue, so they include the offers of servers that are not connected now. Answers come from the
servers, unchanged but for names and URIs: here they include the server's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from toolscript.domain.agent_skills import find_path
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import NotFound, UpstreamFailed
from toolscript.domain.limits import current_limits
from toolscript.domain.native_names import (
    matches_template,
    name_prompt,
    split_name,
    unwrap_uri,
    wrap_block,
    wrap_uri,
)
from toolscript.domain.quarantine import require_released
from toolscript.domain.requests import current_request
from toolscript.domain.search import SearchReport
from toolscript.domain.servers import CallRelay
from toolscript.ports.observability import EventSink
from toolscript.retrieval.catalogue import ItemFacts
from toolscript.services.catalogue.quarantine_review import QuarantineReview
from toolscript.services.catalogue.snapshot import CatalogueSnapshots
from toolscript.services.catalogue.visibility import Visibility
from toolscript.services.servers.gateway import Gateway
from toolscript.services.servers.starting_servers import StartingServers
from toolscript.services.support.search_events import (
    MAX_NAME,
    describe_arguments,
    measure_json,
    record_event,
    record_search,
)

PAGE_SIZE = 200


class NativeList(StrEnum):
    """The lists of MCP beside the list of tools."""

    PROMPTS = "prompts"
    RESOURCES = "resources"
    TEMPLATES = "resourceTemplates"
    AGENT_SKILLS = "skills"


@dataclass(frozen=True, slots=True)
class NativePage:
    """Definitions as their servers gave them, with names and URIs of our server; the last id before the next page, if
    there is a next page."""

    entries: Sequence[dict[str, Any]]
    last_id: str | None = None


class NativeItems:
    """Lists prompts, resources and agent skills, and passes on what clients ask of them."""

    def __init__(
        self,
        snapshots: CatalogueSnapshots,
        gateway: Gateway,
        events: EventSink,
        visibility: Visibility,
        quarantine: QuarantineReview,
    ) -> None:
        self._quarantine = quarantine
        self._visibility = visibility
        self._starting = StartingServers(gateway, visibility)
        self._snapshots = snapshots
        self._gateway = gateway
        self._events = events

    async def list_page(self, kind: NativeList, after: str = "") -> NativePage:
        """The entries with ids after `after`, in the order of their ids: pages stay as they are while other items come
        and go. Raises Unavailable when the catalogue cannot be read."""
        if self._gateway.is_incomplete:  # a client may list once, as soon as it is connected
            await self._gateway.settle(current_limits().first_listing)
        facts = await self._snapshots.current().facts()
        wanted = sorted(i for i, each in facts.items.items() if i > after and each.type is _TYPES[kind])
        entries: list[tuple[str, dict[str, Any]]] = []
        for item_id in wanted:
            item = facts.items[item_id].to_item()
            if _find_list(item) is kind and not item.quarantine and await self._is_offered(item):
                entries.append((item_id, _build_entry(item)))
            if len(entries) > PAGE_SIZE:
                return NativePage([entry for _, entry in entries[:-1]], entries[-2][0])
        return NativePage([entry for _, entry in entries])

    async def get_prompt(self, name: str, arguments: Mapping[str, str], user: str | None = None) -> dict[str, Any]:
        """The messages of a prompt. Raises NotFound, and what a call of its server raises."""
        item = await self.find_prompt(name)
        result = await self._call("prompts.get", item, arguments, user)
        messages = result.get("messages")
        if not isinstance(messages, list):
            return result
        return {**result, "messages": [_wrap_message(item.server, message) for message in messages]}

    async def read_resource(self, uri: str, user: str | None = None) -> dict[str, Any]:
        """The contents of a resource or of a file of an agent skill. Raises NotFound, and what a call of its server
        raises."""
        agent_skill, _ = await self._find_agent_skill(uri)
        item = agent_skill or await self.find_resource(uri)
        arguments = {"path": _find_path(item, uri)} if agent_skill else {}
        result = await self._call("resources.read", item, arguments, user)
        contents = result.get("contents")
        if not isinstance(contents, list):
            return result
        return {**result, "contents": [_wrap_contents(item.server, each) for each in contents]}

    async def complete_prompt(self, name: str, params: Mapping[str, Any], user: str | None = None) -> dict[str, Any]:
        """Values for an argument of a prompt. Raises NotFound, and what a call of its server raises."""
        item = await self.find_prompt(name)
        return await self._complete(item, {**params, "ref": {"type": "ref/prompt", "name": item.name}}, user)

    async def complete_resource(self, uri: str, params: Mapping[str, Any], user: str | None = None) -> dict[str, Any]:
        """Values for a variable of a URI template. Raises NotFound, and what a call of its server raises."""
        item = await self.find_resource(uri)
        own = (item.annotations or {})["uri"]
        return await self._complete(item, {**params, "ref": {"type": "ref/resource", "uri": own}}, user)

    async def get_agent_skill(self, uri: str) -> dict[str, Any]:
        """The entry of the agent skill whose `SKILL.md` has that URI on our server, as the list has it. Raises
        NotFound and Quarantined."""
        item, is_main_file = await self._find_agent_skill(uri)
        if item is None or not is_main_file:
            raise NotFound(f"no such agent skill: {uri!r}: skills/list names those that exist", details={"uri": uri})
        return {"skill": _build_entry(item)}

    async def _find_agent_skill(self, uri: str) -> tuple[Item | None, bool]:
        """The agent skill whose folder a URI is in, and whether it is that of its `SKILL.md`. Raises NotFound for one
        that the caller may not see, and Quarantined."""
        server, own = unwrap_uri(uri) or ("", "")
        await self._starting.wait_for_item(Item(server, own, type=ItemType.AGENT_SKILL).id)
        facts = (await self._snapshots.current().facts()).items
        agent_skills = (f for f in facts.values() if f.type is ItemType.AGENT_SKILL and f.server == server)
        inside = [each for f in agent_skills if find_path(each := f.to_item(), own) is not None]
        if not inside:
            return None, False
        item = max(inside, key=lambda each: len(str((each.annotations or {}).get("uri"))))  # of nested ones the inner
        if not await self._is_offered(item):
            raise NotFound(f"no such resource: {uri!r}", details={"uri": uri})
        require_released(item)
        return item, (item.annotations or {}).get("uri") == own

    async def find_prompt(self, name: str) -> Item:
        """The prompt of that name on our server. Raises NotFound and Quarantined."""
        server, own = split_name(name)
        await self._starting.wait_for_item(Item(server, own, type=ItemType.PROMPT).id)
        facts = await self._snapshots.current().facts()
        found = facts.items.get(Item(server, own, type=ItemType.PROMPT).id)
        item = found.to_item() if found else None
        if item is None or not await self._is_offered(item):
            raise NotFound(f"no such prompt: {name!r}: prompts/list names those that exist", details={"name": name})
        require_released(item)
        return item

    async def find_resource(self, uri: str) -> Item:
        """The resource at a URI of our server: one that is listed, that a template gives, or, where neither the
        configuration nor a profile excludes anything, any of a server: servers link to resources that they do not
        list. Raises NotFound and Quarantined."""
        server, own = unwrap_uri(uri) or ("", "")
        unlisted = Item(server, own, type=ItemType.RESOURCE, annotations={"uri": own})
        await self._starting.wait_for_item(unlisted.id)
        facts = await self._snapshots.current().facts()
        for each in facts.items.values():
            if each.type is ItemType.RESOURCE and each.server == server:
                item = each.to_item()
                if _is_at(item, own) and await self._is_offered(item):
                    require_released(item)
                    return replace(item, annotations={"uri": own})
        if any(_may_be_inside(each, server, own) for each in facts.items.values()):
            server = ""  # other spellings of an address must not lead past the quarantine of an agent skill
        if self._gateway.offers_everything(server) and self._visibility.find_profile(current_request()) is None:
            for pin in await self._quarantine.list_waiting(server):
                if pin.offered and pin.shown and _is_at(pin.offered, own):  # the catalogue has its approved address
                    require_released(pin.shown)
            return unlisted
        raise NotFound(
            f"no such resource: {uri!r}: resources/list and resources/templates/list name those that exist",
            details={"uri": uri},
        )

    async def _is_offered(self, item: Item) -> bool:
        return self._gateway.offers(item) and await self._visibility.shows(item, current_request())

    async def _call(self, kind: str, item: Item, arguments: Mapping[str, str], user: str | None) -> dict[str, Any]:
        event = {
            "tool": item.id[:MAX_NAME],
            "server": item.server,
            "arguments": describe_arguments(arguments, as_digest=True),
            "bytes": 0,
        }
        recorded = record_search(
            partial(record_event, self._events), kind, SearchReport(), lambda: event, current_request()
        )
        with recorded, _in_own_words(item.id):
            result = await self._gateway.call(item, arguments, self._gateway.call_timeout, CallRelay(user=user))
            event["bytes"] = measure_json(result.raw)
        return dict(result.structured or {})

    async def _complete(self, item: Item, params: Mapping[str, Any], user: str | None) -> dict[str, Any]:
        with _in_own_words(item.server):
            return dict(await self._gateway.complete(item, params, self._gateway.call_timeout, user))


@contextmanager
def _in_own_words(subject: str) -> Iterator[None]:
    """Raises a server's errors without what we put before its message: the client has asked this server only."""
    try:
        yield
    except UpstreamFailed as error:
        raise UpstreamFailed(error.message.removeprefix(f"{subject} failed: "), details=error.details) from error


_TYPES = {
    NativeList.PROMPTS: ItemType.PROMPT,
    NativeList.RESOURCES: ItemType.RESOURCE,
    NativeList.TEMPLATES: ItemType.RESOURCE,
    NativeList.AGENT_SKILLS: ItemType.AGENT_SKILL,
}


def _is_at(item: Item, uri: str) -> bool:
    """Whether a resource or a template has the URI."""
    about = item.annotations or {}
    template = str(about.get("uriTemplate", ""))
    return item.type is ItemType.RESOURCE and (uri in {about.get("uri"), template} or matches_template(template, uri))


def _may_be_inside(facts: ItemFacts, server: str, uri: str) -> bool:
    """Whether an agent skill of that server has addresses like the URI."""
    address = str((facts.schemas[2] or {}).get("uri", ""))
    is_like = address.partition(":")[0].lower() == uri.partition(":")[0].strip().lower()
    return facts.type is ItemType.AGENT_SKILL and facts.server == server and is_like


def _find_path(item: Item, uri: str) -> str:
    _, own = unwrap_uri(uri) or ("", "")
    return find_path(item, own) or ""


def _find_list(item: Item) -> NativeList:
    if item.type is ItemType.PROMPT:
        return NativeList.PROMPTS
    if item.type is ItemType.AGENT_SKILL:
        return NativeList.AGENT_SKILLS
    return NativeList.RESOURCES if "uri" in (item.annotations or {}) else NativeList.TEMPLATES


def _build_entry(item: Item) -> dict[str, Any]:
    """The definition with the name or URI of our server. Items that an earlier version stored have no definition until
    their server is listed again."""
    about, definition = item.annotations or {}, item.definition or {}
    if item.type is ItemType.AGENT_SKILL:
        files = [{**file, "uri": wrap_uri(item.server, file["uri"])} for file in definition.get("resources", ())]
        uri = wrap_uri(item.server, str(about.get("uri")))
        return {"uri": uri, "frontmatter": definition.get("frontmatter", {}), "resources": files}
    stored = {"name": item.name, "title": item.title, "description": item.description} | dict(about)
    entry = dict(item.definition or {key: value for key, value in stored.items() if value})
    if item.type is ItemType.PROMPT:
        return entry | {"name": name_prompt(item.server, item.name)}
    return entry | {key: wrap_uri(item.server, str(about[key])) for key in ("uri", "uriTemplate") if key in about}


def _wrap_message(server: str, message: Any) -> Any:
    if not isinstance(message, Mapping):
        return message
    return {**message, "content": wrap_block(server, message.get("content"))}


def _wrap_contents(server: str, contents: Any) -> Any:
    if not isinstance(contents, Mapping) or not isinstance(contents.get("uri"), str):
        return contents
    return {**contents, "uri": wrap_uri(server, contents["uri"])}
