"""Agent skills: folders with a `SKILL.md` that tells an agent how to do some work, and the files that belong to it.

They are items of the catalogue. A skill, in contrast, is a group of items. Limits and rules for names are those of the
Agent Skills specification, identifiers and digests those of MCP's extension for it (SEP-2640).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any
from urllib.parse import quote, unquote

from toolscript.domain.catalog import Item, ItemType
from toolscript.domain.errors import Invalid, InvalidArguments, NotFound, UpstreamFailed
from toolscript.domain.servers import ServerSpec, Transport
from toolscript.domain.spelling import suggest

EXTENSION = "io.modelcontextprotocol/skills"
MAIN_FILE = "SKILL.md"
SERVER_NAME = "agent-skills"
"""The server that the agent skills of configured folders belong to."""
MAX_NAME = 64
MAX_DESCRIPTION = 1024
# Twenty times what the specification recommends.
MAX_MAIN_BYTES = 256 * 2**10
MAX_FILES = 512
MAX_BYTES = 16 * 2**20
MAX_PATH = 500
# Of one server or folder.
MAX_AGENT_SKILLS = 1000
# Of the names of files that an error or an answer lists.
MAX_LISTED = 20

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Control characters and lone surrogates: stores refuse them, and terminals obey them.
_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PASSAGE = re.compile(r"#\d+\Z")


@dataclass(frozen=True, slots=True)
class AgentSkillFile:
    """A file of an agent skill."""

    uri: str
    digest: str
    size: int | None = None


def build_folder_server(folders: tuple[str, ...]) -> ServerSpec:
    """The server, within this process, of the agent skills in these folders."""
    return ServerSpec(SERVER_NAME, Transport.INTERNAL, args=folders)


def compute_digest(content: bytes) -> str:
    """The digest of a file as SEP-2640 writes it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def build_agent_skill(
    server: str, uri: str, frontmatter: Mapping[str, Any], files: Mapping[str, AgentSkillFile], body: str
) -> Item:
    """The item of an agent skill with that address of its `SKILL.md` and these files by path. Raises Invalid, saying
    which rule its frontmatter or its files break."""
    check_frontmatter(frontmatter)
    check_files(files)
    if uri != files[MAIN_FILE].uri:
        raise Invalid(f"its files are not in the folder of {uri}")
    listed = [
        {"uri": file.uri, "digest": file.digest, **({} if file.size is None else {"size": file.size})}
        for file in files.values()
    ]
    name = str(frontmatter["name"])
    return Item(
        server,
        name,
        description=" ".join(str(frontmatter["description"]).split()),
        type=ItemType.AGENT_SKILL,
        annotations={"uri": uri},
        definition={"name": name, "frontmatter": dict(frontmatter), "resources": listed, "body": body},
    )


def check_frontmatter(frontmatter: Mapping[str, Any]) -> None:
    """Raises Invalid for a name or a description that the specification does not allow."""
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise Invalid(
            f"name {str(name)[:MAX_NAME]!r} is not allowed: use 1 to {MAX_NAME} lowercase letters, digits and single "
            "hyphens between them"
        )
    if not isinstance(description, str) or not description.strip():
        raise Invalid("description is missing: say what the agent skill does and when to use it")
    if len(description) > MAX_DESCRIPTION:
        raise Invalid(f"description has {len(description)} characters: at most {MAX_DESCRIPTION} are allowed")


def check_files(files: Mapping[str, AgentSkillFile]) -> None:
    """Raises Invalid for files without `SKILL.md`, with a path out of the folder or an invalid digest, too many or too
    large."""
    if MAIN_FILE not in files:
        raise Invalid(f"has no {MAIN_FILE}")
    if len(files) > MAX_FILES:
        raise Invalid(f"has more than {MAX_FILES} files")
    if (files[MAIN_FILE].size or 0) > MAX_MAIN_BYTES:
        raise Invalid(f"its {MAIN_FILE} has more than {MAX_MAIN_BYTES // 2**10} KiB")
    if sum(file.size or 0 for file in files.values()) > MAX_BYTES:
        raise Invalid(f"its files have more than {MAX_BYTES // 2**20} MiB")
    for path, file in files.items():
        if not is_inside(path) or _UNSTORABLE.search(file.uri):
            raise Invalid(
                f"the path {path[:MAX_PATH]!r} is not inside of its folder, or has characters that no store takes"
            )
        if not _DIGEST.fullmatch(file.digest):
            raise Invalid(f"the digest of {path[:MAX_PATH]!r} is not sha256: and 64 hexadecimal digits")


def is_inside(path: str) -> bool:
    """Whether a relative path stays inside of its folder, on every system, and every store takes it.

    >>> is_inside("references/a.md"), is_inside("../secrets"), is_inside("/etc/passwd"), is_inside("c:x")
    (True, False, False, False)
    """
    parts = path.split("/")
    has_traversal = any(part in {"", ".", ".."} for part in parts)
    is_odd = "\\" in path or _UNSTORABLE.search(path) or PureWindowsPath(path).drive
    return not (has_traversal or is_odd or len(path) > MAX_PATH)


def locate(uri: str, path: str) -> str:
    """The address of a file beside the `SKILL.md` at an address.

    >>> locate("skill://ops/release-notes/SKILL.md", "a b.md")
    'skill://ops/release-notes/a%20b.md'
    """
    return uri.removesuffix(MAIN_FILE) + quote(path, safe="/")


def find_path(item: Item, uri: str) -> str | None:
    """The path of an address within an agent skill; None for an address outside of it."""
    root = str((item.annotations or {}).get("uri", "")).removesuffix(MAIN_FILE)
    return unquote(uri.removeprefix(root)) if root and uri.startswith(root) else None


def list_files(item: Item) -> dict[str, AgentSkillFile]:
    """The files of an agent skill, by path."""
    listed = (item.definition or {}).get("resources", ())
    files = (AgentSkillFile(each["uri"], each["digest"], each.get("size")) for each in listed)
    return {path: file for file in files if (path := find_path(item, file.uri)) is not None}


def find_file(item: Item, arguments: Mapping[str, Any]) -> tuple[str, AgentSkillFile]:
    """The file that a call asks for with `path`, by default the `SKILL.md`. Raises InvalidArguments, and NotFound with
    the files that exist."""
    path = arguments.get("path", MAIN_FILE)
    if not isinstance(path, str) or not is_inside(path):
        raise InvalidArguments(
            f"path: must be a file of {item.id}, such as {MAIN_FILE}, relative to its folder",
            details={"field": "path", "tool": item.id},
        )
    files = list_files(item)
    if path not in files:
        names = sorted(files)
        more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        raise NotFound(
            f"{item.id} has no file {path!r}{suggest(path, names)}. It has {', '.join(names[:MAX_LISTED])}{more}",
            details={"tool": item.id, "path": path},
        )
    return path, files[path]


def require_digest(item: Item, path: str, file: AgentSkillFile, content: bytes) -> None:
    """Raises UpstreamFailed for content that is not what was listed, and perhaps approved."""
    if compute_digest(content) != file.digest:
        raise UpstreamFailed(
            f"{path} of {item.id} is not the file that was listed: it has changed, and is read again when its new "
            "version is in the catalogue",
            details={"server": item.server, "tool": item.id},
        )


def get_body(item: Item) -> str:
    """The text of the `SKILL.md` behind its frontmatter; empty for other items."""
    return str((item.definition or {}).get("body", "")) if item.type is ItemType.AGENT_SKILL else ""


def name_passage(item_id: str, number: int) -> str:
    """The id of the point of a passage of an agent skill's text."""
    return f"{item_id}#{number}"


def is_agent_skill(item_id: str) -> bool:
    """Whether an id is that of an agent skill, or of a passage of one."""
    return item_id.partition("__")[2].startswith(f"{ItemType.AGENT_SKILL}:")


def get_item_id(point_id: str) -> str:
    """The id of the item that a point belongs to.

    >>> get_item_id("ops__agent_skill:release-notes#3"), get_item_id("ops__tool#3")
    ('ops__agent_skill:release-notes', 'ops__tool#3')
    """
    return _PASSAGE.sub("", point_id) if is_agent_skill(point_id) else point_id
