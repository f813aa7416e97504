"""The agent skills of servers that speak SEP-2640: `skills/list`, and the `SKILL.md` of each, because its text is
searched. Other files are read when somebody asks for them.

What a server says counts only where it fits the file: a `SKILL.md` has to have its listed digest, name and description.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import mcp_types as types
from mcp import MCPError
from mcp.client.session import ClientSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolscript.adapters.agent_skills.main_file import parse_main_file
from toolscript.adapters.mcp.dispatcher import raw_result
from toolscript.adapters.mcp.lenient_reader import MAX_NAME_LENGTH, is_usable_name
from toolscript.domain.agent_skills import (
    EXTENSION,
    MAIN_FILE,
    MAX_AGENT_SKILLS,
    MAX_FILES,
    MAX_MAIN_BYTES,
    AgentSkillFile,
    build_agent_skill,
    check_files,
    compute_digest,
    find_file,
    require_digest,
)
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Invalid, InvalidArguments, ToolscriptError, UpstreamFailed
from toolscript.domain.servers import ServerListing

MAX_PAGES = 100
MAX_PROBLEMS = 20
READ_SECONDS = 10.0
LISTING_SECONDS = 60.0
READ_AT_ONCE = 8

OpenSession = Callable[[], AbstractAsyncContextManager[ClientSession]]
"""Opens another session with the same server, by the newest version of the protocol."""


class _ListRequest(types.Request[types.PaginatedRequestParams | None, str]):
    method: str = "skills/list"
    params: types.PaginatedRequestParams | None = None


class AgentSkillReader:
    """Lists the agent skills of one server."""

    def __init__(self, server: str, open_modern: OpenSession) -> None:
        self._server = server
        self._open_modern = open_modern
        self._read: dict[tuple[str, str], tuple[dict[str, Any], str]] = {}
        """The frontmatter and the text of each `SKILL.md` that was read, by its URI and digest."""
        self._folders: _Folders | None = None
        self.listing = asyncio.Lock()
        """To be held while the server is listed."""

    async def add_to(self, session: ClientSession, listing: ServerListing) -> ServerListing:
        """The listing of a server with its agent skills, without the resources and templates that lead to their files
        alone: who may read those, and which content is approved, is decided for the agent skill."""
        agent_skills = await self.list(session, listing.items)
        folders = self._folders = _Folders(agent_skills.items)
        items = await asyncio.to_thread(folders.leave_out_files, listing.items)
        return ServerListing([*items, *agent_skills.items], [*listing.problems, *agent_skills.problems])

    async def refuse_file(self, item: Item, uri: str) -> None:
        """Raises InvalidArguments for the address of a resource that is a file of an agent skill. Callers may come
        before the end of the first listing, which names the agent skills: they wait for it."""
        if self._folders is None:
            async with self.listing:
                pass
        if self._folders and self._folders.has(uri):
            raise InvalidArguments(
                f"{item.id}: this is the address of a file of an agent skill: read the agent skill instead",
                details={"field": "", "tool": item.id},
            )

    async def list(self, session: ClientSession, items: Sequence[Item]) -> ServerListing:
        """The agent skills of the server with these other items. fastmcp tells only clients of the newest protocol that
        it has some, and lists their files as resources for others: it gets a second session. Raises nothing that is
        about agent skills: others of the server's items are usable."""
        offered = session.server_capabilities
        try:
            async with asyncio.timeout(LISTING_SECONDS):
                if offered and EXTENSION in (offered.extensions or {}):
                    return await self._list(session)
                if session.protocol_version not in MODERN_PROTOCOL_VERSIONS and any(map(_is_main_file, items)):
                    async with self._open_modern() as modern:
                        offered = modern.server_capabilities
                        if offered and EXTENSION in (offered.extensions or {}):
                            return await self._list(modern)
        except TimeoutError:
            return ServerListing((), [f"its agent skills were not listed within {LISTING_SECONDS:g} s"])
        except Exception as error:
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError from error  # the SDK raises what fails while its sessions are closed
            cause = find_root_cause(error)
            reason = cause.message if isinstance(cause, MCPError | ToolscriptError) else str(cause)
            return ServerListing((), [f"its agent skills could not be listed: {reason or type(cause).__name__}"])
        return ServerListing(())

    async def _list(self, session: ClientSession) -> ServerListing:
        problems: list[str] = []
        entries = await _list_entries(session, problems)
        slots = asyncio.Semaphore(READ_AT_ONCE)

        async def read(entry: Mapping[str, Any]) -> Item | None:
            try:
                async with slots, asyncio.timeout(READ_SECONDS):
                    return await self._build(session, entry)
            except TimeoutError:
                reason = f"its {MAIN_FILE} was not read within {READ_SECONDS:g} s"
            except (MCPError, ToolscriptError) as error:
                reason = error.message
            except Exception as error:  # noqa: BLE001  (the server decides what is in an entry)
                reason = f"its entry is invalid: {type(error).__name__}: {error}"
            problems.append(f"agent skill {str(entry.get('uri'))[:200]!r} is left out: {reason}")
            return None

        read_items = [item for item in await asyncio.gather(*map(read, entries)) if item is not None]
        listed = {(file["uri"], file["digest"]) for item in read_items for file in (item.definition or {})["resources"]}
        self._read = {key: parsed for key, parsed in self._read.items() if key in listed}
        more = len(problems) - MAX_PROBLEMS
        named = [*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        return ServerListing(_give_unique_names(read_items), named)

    async def _build(self, session: ClientSession, entry: Mapping[str, Any]) -> Item:
        """Raises Invalid for an entry that cannot be used, and what the SDK raises."""
        uri, listed = entry.get("uri"), entry.get("resources")
        if not isinstance(uri, str) or not uri.endswith(f"/{MAIN_FILE}"):
            raise Invalid(f"its address is not that of a {MAIN_FILE}")
        if not isinstance(listed, list):
            raise Invalid("the server lists no files with digests, so that nobody can tell when it changes")
        if len(listed) > MAX_FILES:
            raise Invalid(f"has more than {MAX_FILES} files")
        root, files = uri.removesuffix(MAIN_FILE), {}
        for each in listed:
            size = each.get("size")
            file = AgentSkillFile(str(each["uri"]), str(each["digest"]), int(size) if size is not None else None)
            if not file.uri.startswith(root):
                raise Invalid(f"{file.uri[:200]!r} is not in its folder")
            files[unquote(file.uri.removeprefix(root))] = file
        check_files(files)
        main = files[MAIN_FILE]
        key = main.uri, main.digest
        if key not in self._read:
            content = await _read_main_file(session, main)
            self._read[key] = await asyncio.to_thread(parse_main_file, content)
        frontmatter, body = self._read[key]
        stated = entry.get("frontmatter") or {}
        for name in ("name", "description"):
            if str(stated.get(name)).strip() != str(frontmatter.get(name)).strip():
                raise Invalid(f"its {name} in the list is not that of its {MAIN_FILE}")
        item = build_agent_skill(self._server, uri, frontmatter, files, body)
        if unquote(root.rstrip("/").rpartition("/")[2]) != item.name:
            raise Invalid(f"its folder is not named {item.name!r}, as it is")
        return item


def find_root_cause(error: Exception) -> Exception:
    """The first exception of nested groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class _Folders:
    """The folders of a server's agent skills."""

    def __init__(self, agent_skills: Sequence[Item]) -> None:
        roots = [str((item.annotations or {})["uri"]).removesuffix(MAIN_FILE) for item in agent_skills]
        self._roots = (*roots, *(f"{_normalise(root)}/" for root in roots))

    def leave_out_files(self, items: Sequence[Item]) -> list[Item]:
        """The items without resources and templates that lead to files of these agent skills alone."""
        return [item for item in items if item.type is not ItemType.RESOURCE or not self.has(_get_address(item))]

    def has(self, uri: str) -> bool:
        """Whether an address, however it is written, is in one of the folders."""
        return uri.startswith(self._roots) or _normalise(uri).startswith(self._roots)


def require_listed_file(item: Item, arguments: Mapping[str, Any], raw: Mapping[str, Any]) -> None:
    """Raises UpstreamFailed unless the answer is the listed file of the agent skill."""
    path, file = find_file(item, arguments)
    try:
        content = _read_content(raw)
    except ValueError as error:
        raise UpstreamFailed(f"{path} of {item.id}: {error}", details={"server": item.server}) from error
    require_digest(item, path, file, content)


async def _list_entries(session: ClientSession, problems: list[str]) -> list[Mapping[str, Any]]:
    entries: list[Mapping[str, Any]] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        params = types.PaginatedRequestParams(cursor=cursor) if cursor else types.PaginatedRequestParams()
        await session.send_request(_ListRequest(params=params), types.Result)
        page = raw_result.get()
        listed = page.get("skills")
        if not isinstance(listed, list):
            raise Invalid("the answer to skills/list has no list of skills")
        entries += [each for each in listed if isinstance(each, Mapping)]
        if len(entries) > MAX_AGENT_SKILLS:
            problems.append(f"it lists more than {MAX_AGENT_SKILLS} agent skills: the rest is left out")
            return entries[:MAX_AGENT_SKILLS]
        following = page.get("nextCursor")
        if not isinstance(following, str) or not following or following == cursor:
            return entries
        cursor = following
    problems.append(f"skills/list has more than {MAX_PAGES} pages: the rest is left out")
    return entries


async def _read_main_file(session: ClientSession, file: AgentSkillFile) -> bytes:
    request = types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=file.uri))
    await session.send_request(request, types.ReadResourceResult)
    content = _read_content(raw_result.get())
    if len(content) > MAX_MAIN_BYTES:
        raise Invalid(f"its {MAIN_FILE} has more than {MAX_MAIN_BYTES // 2**10} KiB")
    if compute_digest(content) != file.digest:
        raise Invalid(f"its {MAIN_FILE} does not have the listed digest")
    return content


def _read_content(raw: Mapping[str, Any]) -> bytes:
    """The content of the one file of an answer. Raises ValueError."""
    match raw.get("contents"):
        case [{"text": str(text)}]:
            return text.encode(errors="surrogatepass")
        case [{"blob": str(blob)}]:
            try:
                return base64.b64decode(blob, validate=True)
            except binascii.Error as error:
                raise ValueError("the server sent a blob that is not base64") from error
        case _:
            raise ValueError("the server did not send one file")


def _give_unique_names(items: Sequence[Item]) -> list[Item]:
    """Names of agent skills need not be unique on a server, their paths are: those with equal names get theirs, decoded
    if that is a name."""
    counts = Counter(item.name for item in items)

    def name(item: Item) -> Item:
        path = str((item.annotations or {})["uri"]).partition("://")[2].removesuffix(f"/{MAIN_FILE}")[:MAX_NAME_LENGTH]
        decoded = unquote(path)
        return replace(item, name=decoded if is_usable_name(decoded) else path) if counts[item.name] > 1 else item

    return list({item.id: item for item in map(name, items)}.values())


def _is_main_file(item: Item) -> bool:
    uri = _get_address(item)
    return item.type is ItemType.RESOURCE and uri.startswith("skill://") and uri.endswith(f"/{MAIN_FILE}")


def _get_address(item: Item) -> str:
    about = item.annotations or {}
    return str(about.get("uri") or about.get("uriTemplate"))


def _normalise(uri: str) -> str:
    """One spelling of the addresses that a server may read as the same."""
    return posixpath.normpath(unquote(unquote(uri.strip())).replace("\\", "/")).casefold()
