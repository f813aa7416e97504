"""Vectors of earlier runs, one JSON file per list of servers, so that a restart embeds nothing twice.

The files only save time: one that is damaged, or that another model made, is as good as none and is replaced by the
next write. A file ends with a checksum of all before it, because a flipped bit in a vector would otherwise be believed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import threading
import time
from binascii import a2b_base64, b2a_base64
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from toolscript.domain.search import Vector

VERSION = 1
MOST_OTHERS = 20
LEFTOVER_SECONDS = 3600
# How far the length of a vector may be from 1.
TOLERANCE = 0.01
_CHECKSUM = b',"checksum":"'
_TOOLS = b',"tools":{'
_HEAD_BYTES = 1 << 20
_LITTLE_ENDIAN = np.dtype("<f4")
# What reading a file that is not ours, or not whole, can raise.
_UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a file holds. Vectors stay the texts they are: a run wants few of them, and writes the others back."""

    model: str
    dimensions: int
    tools: dict[str, Any]


class EmbeddingFiles:
    """A vector cache in a folder that several processes may share; whoever writes last wins, whole file by whole file.

    The file of the current list of servers stays in memory as it was read, until it changes or the list does.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = threading.Lock()
        self._copy: tuple[object, _Kept] | None = None
        self._told: set[tuple[str, str]] = set()

    async def has(self, servers: Collection[str]) -> bool:
        """Whether anything was kept for this list of servers."""
        return await asyncio.to_thread(self._path(servers).is_file)

    async def find(self, servers: Collection[str], model: str, wanted: Mapping[str, str]) -> dict[str, Vector]:
        """The vectors of the wanted items (id to digest) that were kept with that digest by that model: from the
        file of this list of servers, and for the rest from those of other configurations."""
        return await asyncio.to_thread(self._find, self._path(servers), model, dict(wanted))

    async def keep(self, servers: Collection[str], model: str, vectors: Mapping[str, tuple[str, Vector]]) -> None:
        """Adds or replaces vectors (id to digest and vector) in the file of this list of servers, and forgets items
        of servers that are not in it. Never raises for a disk that is full or read-only: it logs a warning once."""
        if vectors:
            await asyncio.to_thread(self._keep, frozenset(servers), model, dict(vectors))

    def _path(self, servers: Collection[str]) -> Path:
        listed = json.dumps(sorted(set(servers)), ensure_ascii=False, separators=(",", ":"))
        return self._folder / f"embeddings-{hashlib.sha256(listed.encode(errors='surrogatepass')).hexdigest()}.json"

    def _find(self, own: Path, model: str, wanted: dict[str, str]) -> dict[str, Vector]:
        with self._turn:
            found = self._vectors(own, self._own(own, model), wanted)
        for other in self._others(own)[:MOST_OTHERS]:
            missing = {item_id: digest for item_id, digest in wanted.items() if item_id not in found}
            if not missing:
                break
            found |= self._vectors(other, self._other(other, model, missing), missing)
        return found

    def _keep(self, servers: frozenset[str], model: str, vectors: dict[str, tuple[str, Vector]]) -> None:
        path = self._path(servers)
        with self._turn:
            held = self._own(path, model)
            dimensions = len(next(iter(vectors.values()))[1])
            tools = dict(held.tools) if held and held.dimensions == dimensions else {}
            tools.update((item_id, _entry(digest, vector)) for item_id, (digest, vector) in vectors.items())
            kept = _Kept(model, dimensions, {i: entry for i, entry in tools.items() if _server_of(i, servers)})
            if kept == held:
                return
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._remove_leftovers(path)
                _write(path, _content(kept, servers))
                self._copy = (_stamp(path), kept)
            except OSError as error:
                self._tell("embedding_cache_not_written", self._folder, error.strerror or str(error))

    def _own(self, path: Path, model: str) -> _Kept | None:
        """The file of the current list of servers, from memory where it has not changed."""
        try:
            stamp = _stamp(path)
            if self._copy is None or self._copy[0] != stamp:
                self._copy = None
                self._copy = (stamp, _parsed(path.read_bytes()))
        except FileNotFoundError:
            return None
        except _UNUSABLE as error:
            self._ignore(path, error)
            return None
        kept = self._copy[1]
        if kept.model == model:
            return kept
        self._tell("embedding_cache_ignored", path, f"made by model {kept.model}, in use is {model}")
        return None

    def _others(self, own: Path) -> list[Path]:
        """The files of other configurations, newest first."""
        there = []
        for each in self._folder.glob("embeddings-*.json"):
            with suppress(OSError):
                there.append((each.stat().st_mtime_ns, each))
        return [path for _, path in sorted(there, reverse=True) if path != own]

    def _other(self, path: Path, model: str, missing: Mapping[str, str]) -> _Kept | None:
        """The file of another configuration, read only when its first words say that it may have what is missing."""
        try:
            with path.open("rb") as opened:
                head = opened.read(_HEAD_BYTES)
                about = json.loads(head.partition(_TOOLS)[0] + b"}")
                servers = frozenset(about["servers"])
                if about["model"] != model or not any(_server_of(item_id, servers) for item_id in missing):
                    return None
                return _parsed(head + opened.read())
        except _UNUSABLE as error:
            self._ignore(path, error)
            return None

    def _vectors(self, path: Path, kept: _Kept | None, wanted: Mapping[str, str]) -> dict[str, Vector]:
        if kept is None:
            return {}
        ids = [i for i, digest in wanted.items() if i in kept.tools and kept.tools[i]["hash"] == digest]
        try:
            rows = b"".join(a2b_base64(kept.tools[i]["vector"]) for i in ids)
            matrix = np.frombuffer(rows, _LITTLE_ENDIAN).reshape(len(ids), kept.dimensions).astype(np.float32)
        except _UNUSABLE:
            self._tell("embedding_cache_ignored", path, "it has vectors that cannot be read")
            return {}
        with np.errstate(all="ignore"):
            good = np.abs(np.linalg.norm(matrix, axis=1) - 1) < TOLERANCE
        if not good.all():
            self._tell("embedding_cache_ignored", path, "it has vectors that are not of length 1")
        return {item_id: vector for item_id, vector, usable in zip(ids, matrix, good, strict=True) if usable}

    def _remove_leftovers(self, own: Path) -> None:
        """Removes files that nobody would read again, and what killed writers left behind (younger files may still
        be written)."""
        for forgotten in self._others(own)[MOST_OTHERS:]:
            with suppress(OSError):
                forgotten.unlink()
        for leftover in self._folder.glob("*.new-*"):
            with suppress(OSError):
                if time.time() - leftover.stat().st_mtime > LEFTOVER_SECONDS:
                    leftover.unlink()

    def _ignore(self, path: Path, error: Exception) -> None:
        told = isinstance(error, OSError | ValueError)
        self._tell("embedding_cache_ignored", path, str(error) if told else "it is no embedding cache")

    def _tell(self, event: str, path: Path, reason: str) -> None:
        if (event, path.name) not in self._told:
            self._told.add((event, path.name))
            log.warning(event, extra={"path": str(path), "reason": reason})


def _server_of(item_id: str, servers: Collection[str]) -> str | None:
    """Which of the servers an item belongs to: its id is `server__name`, and either side may have underscores."""
    at = item_id.find("__")
    while at >= 0 and item_id[:at] not in servers:
        at = item_id.find("__", at + 1)
    return item_id[:at] if at >= 0 else None


def _stamp(path: Path) -> object:
    told = path.stat()
    return path, told.st_mtime_ns, told.st_size, told.st_ino


def _entry(digest: str, vector: Vector) -> dict[str, str]:
    return {"hash": digest, "vector": b2a_base64(vector.astype(_LITTLE_ENDIAN).tobytes(), newline=False).decode()}


def _content(kept: _Kept, servers: Collection[str]) -> bytes:
    about = {"version": VERSION, "model": kept.model, "dimensions": kept.dimensions, "servers": sorted(servers)}
    body = json.dumps({**about, "tools": kept.tools}, separators=(",", ":")).encode()[:-1]
    return b"".join([body, _CHECKSUM, hashlib.sha256(body).hexdigest().encode(), b'"}'])


def _parsed(content: bytes) -> _Kept:
    """What such a file holds. Raises one of _UNUSABLE for anything that `_content` did not make."""
    body, _, checksum = content.rpartition(_CHECKSUM)
    if checksum != hashlib.sha256(body).hexdigest().encode() + b'"}':
        raise ValueError("it is damaged")
    document = json.loads(body + b"}")
    if document["version"] != VERSION:
        raise ValueError(f"it has version {document['version']}, not {VERSION}")
    dimensions, tools = document["dimensions"], document["tools"]
    base64_length = -(-dimensions * _LITTLE_ENDIAN.itemsize // 3) * 4
    if dimensions < 1 or any(len(e["vector"]) != base64_length or not e["hash"] for e in tools.values()):
        raise ValueError("it has vectors of another size than it says")
    return _Kept(document["model"], dimensions, tools)


def _write(path: Path, content: bytes) -> None:
    """Leaves the old file or the new one, whatever happens: the new one is whole on disk before it takes the name."""
    new = path.with_name(f"{path.name}.new-{uuid4().hex}")
    try:
        with new.open("xb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
