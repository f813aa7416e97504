"""`skillFolders` of a configuration file: folders whose subfolders are agent skills. Reads them, finds those of other
clients, and adds them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from toolscript.configuration.jsonc import JsoncNode, parse_jsonc
from toolscript.configuration.jsonc_edit import TextEdit, add_member, apply_edits
from toolscript.domain.agent_skills import MAIN_FILE, SERVER_NAME

AGENT_SKILL_FOLDERS = "skillFolders"
# Where clients keep agent skills, in the home folder and in projects.
CLIENT_FOLDERS = (".claude/skills", ".agents/skills")


def read_agent_skill_folders(
    node: JsoncNode,
    report: Callable[[JsoncNode, str], None],
    resolve_path: Callable[[JsoncNode], Path | None],
    servers: Container[str],
) -> list[str]:
    """The folders as absolute paths. Problems are reported."""
    if node.value is None:
        return []
    if not isinstance(node.value, list):
        report(node, "must be a list of folders")
        return []
    if SERVER_NAME in servers:
        report(node, f"cannot be used beside a server named {SERVER_NAME}, which is their name: rename that server")
    folders = [resolve_path(each) for each in node.value]
    return [os.path.normpath(folder) for folder in folders if folder]


def find_client_folders(folder: Path) -> list[Path]:
    """The folders with agent skills that clients have in the home folder or in a project."""
    places = [folder / each for each in CLIENT_FOLDERS]
    return [place for place in places if place.is_dir() and any(place.glob(f"*/{MAIN_FILE}"))]


def list_missing(text: str, folders: Sequence[Path], *, file: Path, home: Path) -> list[str]:
    """Those of the folders that the text of a configuration file does not have, as it may name them."""
    node = parse_jsonc(text).root.find(AGENT_SKILL_FOLDERS)
    named = node.to_python() if node and isinstance(node.value, list) else []
    texts = [each for each in named if isinstance(each, str)]
    existing = {os.path.normpath(file.parent / Path(f"{home}{t[1:]}" if t.startswith("~") else t)) for t in texts}
    return [
        f"~/{each.relative_to(home).as_posix()}" if each.is_relative_to(home) else str(each)
        for each in folders
        if os.path.normpath(each) not in existing
    ]


def add_folders(text: str, folders: Sequence[str]) -> str:
    """The text of a configuration file with these folders, too."""
    node = parse_jsonc(text).root.find(AGENT_SKILL_FOLDERS)
    source = json.dumps(list(folders), ensure_ascii=False)
    if node is None:
        return add_member(text, (AGENT_SKILL_FOLDERS,), source)
    if not isinstance(node.value, list):
        return apply_edits(text, [TextEdit(node.start, node.end, source)])
    at = node.value[-1].end if node.value else node.start + 1
    return apply_edits(text, [TextEdit(at, at, f", {source[1:-1]}" if node.value else source[1:-1])])
