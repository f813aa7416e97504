"""The agent skills of configured folders, as a server within this process: what holds for items of servers holds for
them. Links are never followed, and every file is compared with its listed digest when it is read."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolscript.adapters.agent_skills.main_file import parse_main_file
from toolscript.domain.agent_skills import (
    MAIN_FILE,
    MAX_AGENT_SKILLS,
    MAX_BYTES,
    MAX_FILES,
    MAX_MAIN_BYTES,
    SERVER_NAME,
    AgentSkillFile,
    build_agent_skill,
    compute_digest,
    find_file,
    is_inside,
    locate,
    require_digest,
)
from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Invalid, NotFound, UpstreamFailed
from toolscript.domain.servers import NO_RELAY, CallRelay, CallResult, ServerListing
from toolscript.ports.servers import ToolServer

POLL_SECONDS = 2.0
MAX_DEPTH = 16
MAX_PROBLEMS = 100
LEFT_OUT = frozenset({"__pycache__", "node_modules"})

# Changes when a file does: its inode, size, and times of its last change, of which programs can set one.
Stamp = tuple[int, int, int, int]


class AgentSkillFolders(ToolServer):
    """Lists the agent skills of folders, and reads their files."""

    def __init__(self, folders: Sequence[str], *, poll_seconds: float = POLL_SECONDS) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._poll_seconds = poll_seconds
        self._places: dict[str, Path] = {}
        """The folder of each listed agent skill, by name."""
        self._digests: dict[Path, tuple[Stamp, str]] = {}
        self._seen: object = None

    async def list_items(self) -> ServerListing:
        """The agent skills, and why others are left out."""
        self._seen = await asyncio.to_thread(self._read_stamps)
        return await asyncio.to_thread(self._list)

    async def call(
        self,
        item: Item,
        arguments: Mapping[str, Any],
        *,
        within: float,  # noqa: ARG002 (local files)
        relay: CallRelay = NO_RELAY,  # noqa: ARG002
    ) -> CallResult:
        """The contents of a file, as MCP's `resources/read` has them."""
        if item.type is not ItemType.AGENT_SKILL or item.name not in self._places:
            raise NotFound(f"no such agent skill: {item.name!r}", details={"tool": item.id})
        path, file = find_file(item, arguments)
        try:
            content = await asyncio.to_thread(_read_file, self._places[item.name] / path, MAX_BYTES)
        except (OSError, Invalid) as error:
            reason = error.message if isinstance(error, Invalid) else error.strerror
            raise UpstreamFailed(
                f"{path} of {item.id} cannot be read: {reason}", details={"server": item.server}
            ) from error
        require_digest(item, path, file, content)
        return CallResult({"structuredContent": {"contents": [_build_contents(file.uri, path, content)]}})

    async def wait_for_change(self) -> None:
        """Waits until a folder differs from when it was last listed."""
        while True:
            await asyncio.sleep(self._poll_seconds)
            if await asyncio.to_thread(self._read_stamps) != self._seen:
                return

    def _list(self) -> ServerListing:
        items: dict[str, Item] = {}
        places: dict[str, Path] = {}
        problems: list[str] = [f"{each}: no such folder" for each in self._folders if not _is_folder(each)]
        for folder in self._list_candidates(problems):
            if len(items) == MAX_AGENT_SKILLS:
                problems.append(f"there are more than {MAX_AGENT_SKILLS} agent skills: the rest is left out")
                break
            try:
                item = self._read(folder, problems)
            except (OSError, Invalid) as error:
                reason = error.message if isinstance(error, Invalid) else error.strerror
                problems.append(f"agent skill {folder} is left out: {reason}")
                continue
            if item.name in items:
                problems.append(f"agent skill {folder} is left out: {places[item.name]} has its name, {item.name!r}")
                continue
            items[item.name], places[item.name] = item, folder
        self._places = places
        more = len(problems) - MAX_PROBLEMS
        return ServerListing(
            list(items.values()), [*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        )

    def _list_candidates(self, problems: list[str]) -> Iterator[Path]:
        """The folders with a `SKILL.md`, each once."""
        roots = {Path(os.path.realpath(each)) for each in self._folders}
        for root in self._folders:
            for folder in _list_folder(root):
                try:
                    is_link, is_folder = folder.is_symlink(), folder.is_dir()
                except OSError as error:
                    problems.append(f"{folder} is left out: {error.strerror}")
                    continue
                if not is_folder or not os.path.lexists(folder / MAIN_FILE):
                    continue
                target = Path(os.path.realpath(folder))  # Path.resolve raises for circles before Python 3.13
                if not is_link:
                    yield folder
                elif target.parent not in roots:
                    problems.append(
                        f"agent skill {folder} is left out: it is a link to {target}. Add {target.parent} to "
                        "skillFolders"
                    )

    def _read(self, folder: Path, problems: list[str]) -> Item:
        """The agent skill of a folder. Raises Invalid and OSError."""
        found = dict(_walk(folder, problems))
        if MAIN_FILE not in found:
            raise Invalid(f"its {MAIN_FILE} is not a regular file")
        main = _read_file(folder / MAIN_FILE, MAX_MAIN_BYTES)
        frontmatter, body = parse_main_file(main)
        uri = f"skill://{frontmatter.get('name')}/{MAIN_FILE}"
        files = {
            path: AgentSkillFile(locate(uri, path), self._find_digest(folder / path, stamp), stamp[1])
            for path, stamp in found.items()
            if path != MAIN_FILE
        }
        files[MAIN_FILE] = AgentSkillFile(uri, compute_digest(main), len(main))
        return build_agent_skill(SERVER_NAME, uri, frontmatter, dict(sorted(files.items())), body)

    def _find_digest(self, file: Path, stamp: Stamp) -> str:
        known = self._digests.get(file)
        if known is None or known[0] != stamp:
            known = self._digests[file] = stamp, compute_digest(_read_file(file, MAX_BYTES))
        return known[1]

    def _read_stamps(self) -> object:
        """Differs when a file was added, changed or removed."""
        stamps: list[object] = []
        for folder in self._list_candidates([]):
            try:
                stamps.append((folder, list(_walk(folder, []))))
            except (OSError, Invalid) as error:
                stamps.append((folder, str(error)))
        return stamps


def _is_folder(path: Path) -> bool:
    with suppress(OSError):
        return path.is_dir()
    return False


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError:
        return []


def _walk(folder: Path, problems: list[str]) -> Iterator[tuple[str, Stamp]]:
    """The regular files of a folder, without hidden ones. Raises Invalid for too many, too large, or too deep ones:
    none of them is read."""
    waiting, count, size = [(folder, "", 0)], 0, 0
    while waiting:
        current, prefix, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise Invalid(f"its folders are nested deeper than {MAX_DEPTH} levels")
        with os.scandir(current) as entries:
            for entry in entries:
                count += 1
                if count > 2 * MAX_FILES:
                    raise Invalid(f"has more than {MAX_FILES} files")
                path = f"{prefix}{entry.name}"
                if entry.name.startswith(".") or entry.name in LEFT_OUT:
                    continue
                if not is_inside(path):
                    reason = "its path is too long, or has characters that not all systems and stores take"
                    problems.append(f"{folder / path} is left out of its agent skill: {reason}")
                    continue
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(about.st_mode):
                    waiting.append((Path(entry.path), f"{path}/", depth + 1))
                elif stat.S_ISREG(about.st_mode):
                    size += about.st_size
                    if size > MAX_BYTES:
                        raise Invalid(f"its files have more than {MAX_BYTES // 2**20} MiB")
                    yield path, (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
                else:
                    kind = "a link" if stat.S_ISLNK(about.st_mode) else "no regular file"
                    problems.append(f"{folder / path} is left out of its agent skill: it is {kind}")


def _read_file(file: Path, max_bytes: int) -> bytes:
    """The content of a regular file. Raises Invalid for others and for larger ones, OSError for links."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(file, flags), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise Invalid("it is not a regular file")
        content = opened.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise Invalid(f"its {file.name} has more than {max_bytes // 2**10} KiB")
    return content


def _build_contents(uri: str, path: str, content: bytes) -> dict[str, Any]:
    kind = "text/markdown" if path.endswith(".md") else mimetypes.guess_type(path)[0]
    about = {"uri": uri, **({"mimeType": kind} if kind else {})}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {**about, "blob": base64.b64encode(content).decode()}
    return {**about, "text": text}
