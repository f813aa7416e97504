"""An entry of a registry, read from either form of the official registry's API: the nested one
(`{"server": …, "_meta": …}`, camelCase) and the flat one before it (snake_case)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

# The official registry. Nothing is sent there before a person runs `toolscript registry sync`.
OFFICIAL_REGISTRY = "https://registry.modelcontextprotocol.io"
MAX_DEFINITION_BYTES = 64 * 1024
MAX_DEPTH = 20
MAX_TITLE, MAX_DESCRIPTION, MAX_VERSION, MAX_MESSAGE = 200, 1_000, 255, 500
_NAME = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
_MAX_NAME = 200
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_SNAKE = re.compile(r"_([a-z0-9])")
# Keys of the flat form that are no camelCase of the nested one.
_RENAMED = {"registryName": "registryType", "transportType": "type"}

Json = Mapping[str, Any]


class RegistryStatus(StrEnum):
    """What a registry says about a server."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """One version of a server, as a registry lists it."""

    registry: str
    name: str
    """Namespace and name: `io.github.ann/weather`."""
    version: str
    title: str
    description: str
    status: RegistryStatus
    status_message: str
    updated_at: str
    """When the registry changed it, in UTC; empty if it does not say."""
    is_latest: bool
    definition: Json
    """Its `server.json`, with the keys of the nested form."""

    @property
    def id(self) -> str:
        return f"{self.name}@{self.registry}"

    @property
    def publisher(self) -> str:
        """The namespace. The official registry checks that it belongs to the publisher."""
        return self.name.partition("/")[0]

    @property
    def digest(self) -> str:
        """A hash of everything that the publisher states."""
        text = json.dumps(self.definition, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def read_entry(registry: str, given: Any) -> RegistryEntry:
    """Reads an entry of a page. Raises ValueError, saying what is wrong with it."""
    given = _to_object(given)
    server = _to_object(given.get("server", given))
    name = server.get("name")
    if not isinstance(name, str) or len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        given_name = repr(name[:100]) if isinstance(name, str) else f"a value of type {type(name).__name__}"
        raise ValueError(f"not a server's name: {given_name} (expected `namespace/name`)")
    meta = {} if server is given else _to_object(given.get("_meta"))
    official = _to_camel_case(_to_object({**_to_object(server.get("_meta")), **meta}.get(_OFFICIAL)))
    definition = _read_definition(server)
    if len(json.dumps(definition).encode()) > MAX_DEFINITION_BYTES:
        raise ValueError(f"{name}: has more than {MAX_DEFINITION_BYTES // 1024} KiB")
    version = _to_text(definition.get("version"), MAX_VERSION)
    if not version:
        raise ValueError(f"{name}: has no version")
    status = str(official.get("status") or server.get("status") or RegistryStatus.ACTIVE)
    detail = _to_camel_case(_to_object(server.get("version_detail")))
    return RegistryEntry(
        registry,
        name,
        version,
        _to_text(definition.get("title"), MAX_TITLE),
        _to_text(definition.get("description"), MAX_DESCRIPTION),
        RegistryStatus(status) if status in set(RegistryStatus) else RegistryStatus.ACTIVE,
        _to_text(official.get("statusMessage"), MAX_MESSAGE),
        _read_time(official.get("updatedAt") or official.get("publishedAt") or detail.get("releaseDate")),
        (official.get("isLatest", detail.get("isLatest", True))) is True,
        definition,
    )


def choose_latest(entries: Sequence[RegistryEntry]) -> RegistryEntry:
    """The entry to offer among the versions of one server: not a deleted one, if there is another."""
    is_deleted = RegistryStatus.DELETED
    return max(entries, key=lambda each: (each.status is not is_deleted, each.is_latest, each.updated_at))


def _read_definition(server: Json) -> dict[str, Any]:
    definition = {k: v for k, v in _to_camel_case(server).items() if k not in {"_meta", "status", "id"}}
    detail = _to_object(definition.pop("versionDetail", None))
    definition.setdefault("version", detail.get("version"))
    for package in to_objects(definition.get("packages")):
        if "name" in package:
            package.setdefault("identifier", package.pop("name"))
    return definition


def _to_camel_case(value: Any, depth: int = 0) -> Any:
    """The value with camelCase keys, except of maps from names that publishers choose, and with texts that every store
    takes. Raises ValueError for one that is nested deeper than any entry is."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        return [_to_camel_case(each, depth + 1) for each in value]
    if not isinstance(value, Mapping):
        return value
    converted = {}
    for key, member in value.items():
        name = _SNAKE.sub(lambda found: found[1].upper(), str(key)) if not str(key).startswith("_") else str(key)
        if name == "variables" and isinstance(member, Mapping):
            converted[name] = {_clean(each): _to_camel_case(spec, depth + 2) for each, spec in member.items()}
        else:
            converted[_RENAMED.get(name, _clean(name))] = _to_camel_case(member, depth + 1)
    return converted


def _clean(text: str) -> str:
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def to_objects(value: Any) -> list[Any]:
    """The objects of a list; none for anything else."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _to_object(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def _to_text(value: Any, limit: int) -> str:
    return " ".join(_clean(value).split())[:limit] if isinstance(value, str) else ""


def _read_time(value: Any) -> str:
    try:
        time = datetime.fromisoformat(str(value))
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return ""
