"""Caches vectors in JSON files, one per list of servers, so that a restart embeds nothing twice.

The files only save time: a file that is damaged or of another model is ignored and replaced by the next write. Each
ends with a checksum, because nothing else would reveal a flipped bit in a vector.
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

from toolscript.adapters.storage.private_files import make_private_folder, open_private
from toolscript.domain.search import Vector

VERSION = 1
MAX_OTHER_FILES = 20
LEFTOVER_SECONDS = 3600
# Maximum difference of a vector's length from 1.
TOLERANCE = 0.01
_CHECKSUM = b',"checksum":"'
_TOOLS = b',"tools":{'
_HEAD_BYTES = 1 << 20
_LITTLE_ENDIAN = np.dtype("<f4")
# The errors of reading a file that is damaged or of another format.
_UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _CacheFile:
    """The content of a file. Vectors stay base64: a run needs few of them and writes the others back unchanged."""

    model: str
    dimensions: int
    tools: dict[str, Any]


class EmbeddingFiles:
    """A vector cache in a folder that several processes may share: the last writer replaces a whole file.

    The file of the current list of servers stays in memory until the file or the list changes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._loaded: tuple[object, _CacheFile] | None = None
        self._warned: set[tuple[str, str]] = set()

    async def has(self, servers: Collection[str]) -> bool:
        """Whether there is a file for this list of servers."""
        return await asyncio.to_thread(self._path(servers).is_file)

    async def find(self, servers: Collection[str], model: str, wanted: Mapping[str, str]) -> dict[str, Vector]:
        """The cached vectors of the wanted items (id to digest) with that digest and model: from the file of this list
        of servers, and otherwise from the files of other lists."""
        return await asyncio.to_thread(self._find, self._path(servers), model, dict(wanted))

    async def keep(self, servers: Collection[str], model: str, vectors: Mapping[str, tuple[str, Vector]]) -> None:
        """Adds or replaces vectors (id to digest and vector) in the file of this list of servers, and removes items
        of other servers. A full or read-only disk causes one warning in the log, never an error."""
        if vectors:
            await asyncio.to_thread(self._keep, frozenset(servers), model, dict(vectors))

    def _path(self, servers: Collection[str]) -> Path:
        listed = json.dumps(sorted(set(servers)), ensure_ascii=False, separators=(",", ":"))
        return self._folder / f"embeddings-{hashlib.sha256(listed.encode(errors='surrogatepass')).hexdigest()}.json"

    def _find(self, own: Path, model: str, wanted: dict[str, str]) -> dict[str, Vector]:
        with self._lock:
            found = self._vectors(own, self._own(own, model), wanted)
        for other in self._others(own)[:MAX_OTHER_FILES]:
            missing = {item_id: digest for item_id, digest in wanted.items() if item_id not in found}
            if not missing:
                break
            found |= self._vectors(other, self._other(other, model, missing), missing)
        return found

    def _keep(self, servers: frozenset[str], model: str, vectors: dict[str, tuple[str, Vector]]) -> None:
        path = self._path(servers)
        with self._lock:
            existing = self._own(path, model)
            dimensions = len(next(iter(vectors.values()))[1])
            tools = dict(existing.tools) if existing and existing.dimensions == dimensions else {}
            for item_id, (digest, vector) in vectors.items():
                encoded = b2a_base64(vector.astype(_LITTLE_ENDIAN).tobytes(), newline=False).decode()
                tools[item_id] = {"hash": digest, "vector": encoded}
            kept = _CacheFile(model, dimensions, {i: entry for i, entry in tools.items() if _server_of(i, servers)})
            if kept == existing:
                return
            try:
                make_private_folder(self._folder)
                self._remove_leftovers(path)
                _write(path, _content(kept, servers))
                self._loaded = (_stamp(path), kept)
            except OSError as error:
                self._warn("embedding_cache_not_written", self._folder, error.strerror or str(error))

    def _own(self, path: Path, model: str) -> _CacheFile | None:
        """The file of the current list of servers, from memory unless it has changed."""
        try:
            stamp = _stamp(path)
            if self._loaded is None or self._loaded[0] != stamp:
                self._loaded = None
                self._loaded = (stamp, _parse(path.read_bytes()))
        except FileNotFoundError:
            return None
        except _UNUSABLE as error:
            self._ignore(path, error)
            return None
        kept = self._loaded[1]
        if kept.model == model:
            return kept
        self._warn("embedding_cache_ignored", path, f"written by model {kept.model}, current model is {model}")
        return None

    def _others(self, own: Path) -> list[Path]:
        """The files of other lists of servers, newest first."""
        files = []
        for each in self._folder.glob("embeddings-*.json"):
            with suppress(OSError):
                files.append((each.stat().st_mtime_ns, each))
        return [path for _, path in sorted(files, reverse=True) if path != own]

    def _other(self, path: Path, model: str, missing: Mapping[str, str]) -> _CacheFile | None:
        """The file of another list of servers, read completely only when its head names the model and a server."""
        try:
            with path.open("rb") as opened:
                head = opened.read(_HEAD_BYTES)
                header = json.loads(head.partition(_TOOLS)[0] + b"}")
                servers = frozenset(header["servers"])
                if header["model"] != model or not any(_server_of(item_id, servers) for item_id in missing):
                    return None
                return _parse(head + opened.read())
        except _UNUSABLE as error:
            self._ignore(path, error)
            return None

    def _vectors(self, path: Path, kept: _CacheFile | None, wanted: Mapping[str, str]) -> dict[str, Vector]:
        if kept is None:
            return {}
        ids = [i for i, digest in wanted.items() if i in kept.tools and kept.tools[i]["hash"] == digest]
        try:
            rows = b"".join(a2b_base64(kept.tools[i]["vector"]) for i in ids)
            matrix = np.frombuffer(rows, _LITTLE_ENDIAN).reshape(len(ids), kept.dimensions).astype(np.float32)
        except _UNUSABLE:
            self._warn("embedding_cache_ignored", path, "unreadable vectors")
            return {}
        with np.errstate(all="ignore"):
            good = np.abs(np.linalg.norm(matrix, axis=1) - 1) < TOLERANCE
        if not good.all():
            self._warn("embedding_cache_ignored", path, "vectors whose length is not 1")
        return {item_id: vector for item_id, vector, usable in zip(ids, matrix, good, strict=True) if usable}

    def _remove_leftovers(self, own: Path) -> None:
        """Removes files beyond the maximum, and files that killed writers left (younger files may be in use)."""
        for forgotten in self._others(own)[MAX_OTHER_FILES:]:
            with suppress(OSError):
                forgotten.unlink()
        for leftover in self._folder.glob("*.new-*"):
            with suppress(OSError):
                if time.time() - leftover.stat().st_mtime > LEFTOVER_SECONDS:
                    leftover.unlink()

    def _ignore(self, path: Path, error: Exception) -> None:
        is_clear = isinstance(error, OSError | ValueError)
        self._warn("embedding_cache_ignored", path, str(error) if is_clear else "not an embedding cache")

    def _warn(self, event: str, path: Path, reason: str) -> None:
        if (event, path.name) not in self._warned:
            self._warned.add((event, path.name))
            log.warning(event, extra={"path": str(path), "reason": reason})


def _server_of(item_id: str, servers: Collection[str]) -> str | None:
    """The server of an item: its id is `server__name`, and either part may have underscores."""
    at = item_id.find("__")
    while at >= 0 and item_id[:at] not in servers:
        at = item_id.find("__", at + 1)
    return item_id[:at] if at >= 0 else None


def _stamp(path: Path) -> object:
    status = path.stat()
    return path, status.st_mtime_ns, status.st_size, status.st_ino


def _content(kept: _CacheFile, servers: Collection[str]) -> bytes:
    header = {"version": VERSION, "model": kept.model, "dimensions": kept.dimensions, "servers": sorted(servers)}
    body = json.dumps({**header, "tools": kept.tools}, separators=(",", ":")).encode()[:-1]
    return b"".join([body, _CHECKSUM, hashlib.sha256(body).hexdigest().encode(), b'"}'])


def _parse(content: bytes) -> _CacheFile:
    """Reads what `_content` writes. Raises one of _UNUSABLE for anything else."""
    body, _, checksum = content.rpartition(_CHECKSUM)
    if checksum != hashlib.sha256(body).hexdigest().encode() + b'"}':
        raise ValueError("damaged: wrong checksum")
    document = json.loads(body + b"}")
    if document["version"] != VERSION:
        raise ValueError(f"version {document['version']}, expected {VERSION}")
    dimensions, tools = document["dimensions"], document["tools"]
    base64_length = -(-dimensions * _LITTLE_ENDIAN.itemsize // 3) * 4
    if dimensions < 1 or any(len(e["vector"]) != base64_length or not e["hash"] for e in tools.values()):
        raise ValueError("vectors of another size than declared")
    return _CacheFile(document["model"], dimensions, tools)


def _write(path: Path, content: bytes) -> None:
    """Replaces a file atomically: the new one is completely on disk before it gets the name."""
    new = path.with_name(f"{path.name}.new-{uuid4().hex}")
    try:
        with open(new, "xb", opener=open_private) as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
