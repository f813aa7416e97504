"""Reads the sandbox in the entry of a server."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from toolscript.configuration.jsonc import JsoncNode
from toolscript.domain.servers import SandboxKind, SandboxSpec, Transport
from toolscript.domain.spelling import suggest

KEYS = ("kind", "network", "folders", "image")
RULE = (
    'must be "bwrap", or an object such as {"kind": "bwrap", "network": true, "folders": ["~/notes", "/srv/out:rw"]} '
    'or {"kind": "docker", "image": "node:22"}'
)
WRITABLE = ":rw"

Report = Callable[[JsoncNode, str], None]


def read_sandbox(
    node: JsoncNode | None,
    transport: Transport,
    report: Report,
    resolve: Callable[[JsoncNode], str | None],
    resolve_path: Callable[[JsoncNode], Path | None],
) -> SandboxSpec | None:
    """What keeps the program of a server apart; None if the entry does not say. Problems are reported."""
    if node is None:
        return None
    if transport is not Transport.STDIO:
        report(node, "is for servers with a `command`: this server runs elsewhere")
    members = node.value if isinstance(node.value, dict) else {"kind": node}
    for name, each in members.items():
        if name not in KEYS:
            report(each, f"unknown key: allowed are {', '.join(KEYS)}{suggest(name, KEYS)}")
    kind_node = members.get("kind", node)
    if kind_node.value not in list(SandboxKind):
        hint = suggest(kind_node.value, SandboxKind) if isinstance(kind_node.value, str) else ""
        report(kind_node, f"{RULE}{hint}")
        return None
    kind, network, image = SandboxKind(str(kind_node.value)), members.get("network"), members.get("image")
    if network and not isinstance(network.value, bool):
        report(network, "must be true or false")
    if image and kind is SandboxKind.BWRAP:
        report(image, "is for docker and podman: bwrap uses the programs of this machine")
    name = (resolve(image) if image else None) or ""
    if kind is not SandboxKind.BWRAP and (not name or name.startswith("-")):
        report(image or node, f'{kind} needs an image that has the `command`, such as "image": "node:22"')
    folders = _read_folders(members.get("folders"), report, resolve_path)
    return SandboxSpec(kind, bool(network and network.value), folders, name)


def _read_folders(
    node: JsoncNode | None, report: Report, resolve_path: Callable[[JsoncNode], Path | None]
) -> tuple[tuple[str, bool], ...]:
    if node is None:
        return ()
    if not isinstance(node.value, list):
        report(node, 'must be a list such as ["~/notes", "/srv/out:rw"]')
        return ()
    folders: dict[str, bool] = {}
    for each in node.value:
        text = each.value if isinstance(each.value, str) else ""
        is_writable = text.endswith(WRITABLE)
        path = resolve_path(replace(each, value=text.removesuffix(WRITABLE)) if is_writable else each)
        folder = Path(os.path.normpath(path)) if path else None
        if text in {"", WRITABLE} or (folder and folder.parent == folder):
            report(each, "must name a folder or a file, and not the root")
        elif folder:
            folders[str(folder)] = is_writable
    return tuple(folders.items())
