"""Responses about servers that are not connected as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from toolscript.domain.registry.entry import RegistryStatus
from toolscript.domain.registry.launch import RegistryLaunch, list_launches, suggest_name
from toolscript.services.registry.catalogue import RegistryHit, RegistrySyncReport


class RegistryLaunchResponse(TypedDict):
    """A way to use the server."""

    about: Annotated[str, "The package, or the address."]
    runs: Annotated[str, "The command line or the address, with `<NAME>` for values that are missing."]
    needs: Annotated[str, "What a person has to give, in words."]
    problem: Annotated[str | None, "Why Toolscript cannot use it this way."]
    packageDigest: Annotated[str | None, "The SHA-256 of the package's file, as its publisher states it."]


class RegistryServerResponse(TypedDict):
    """A server that is not connected, and cannot be called."""

    name: str
    registry: str
    version: str
    digest: Annotated[str, "A hash of everything that the publisher states."]
    publisher: Annotated[str, "The namespace of the name; the registry checks whose it is."]
    title: str
    description: str
    status: RegistryStatus
    statusMessage: str
    updatedAt: str
    confidence: float
    suggestedName: Annotated[str, "A name for the configuration."]
    launches: Annotated[list[RegistryLaunchResponse], "Ways to use it, usable ones first."]
    definition: Annotated[dict[str, Any], "Its `server.json`."]


class RegistrySearchResponse(TypedDict):
    """Servers that may serve the request."""

    query: str
    servers: list[RegistryServerResponse]


class RegistrySyncResponse(TypedDict):
    """What a synchronisation has changed."""

    registry: str
    added: int
    changed: int
    removed: int
    total: int
    withheld: Annotated[list[str], "Servers that are left out because their texts address the model; the first ten."]
    problems: Annotated[list[str], "Why other entries cannot be used; the first ten."]


def build_registry_search_response(query: str, hits: Sequence[RegistryHit]) -> RegistrySearchResponse:
    """Builds the response of `GET /api/v1/registry/search` and `toolscript search --registry --json`."""
    return {"query": query, "servers": [_build_server(hit) for hit in hits]}


def build_registry_sync_response(report: RegistrySyncReport) -> RegistrySyncResponse:
    """Builds the response of `POST /api/v1/registry/sync` and `toolscript registry sync --json`."""
    return {
        "registry": report.registry,
        "added": report.added,
        "changed": report.changed,
        "removed": report.removed,
        "total": report.total,
        "withheld": list(report.withheld),
        "problems": list(report.problems),
    }


def describe_runs(launch: RegistryLaunch) -> str:
    """The command line, or the address."""
    entry = launch.entry
    return str(entry["url"]) if launch.is_remote else shlex.join([entry["command"], *entry["args"]])


def describe_needs(launch: RegistryLaunch) -> str:
    """What a person has to give: `needs SLACK_TOKEN (secret); optional TEAM`."""
    required = [f"{i.name}{' (secret)' if i.is_secret else ''}" for i in launch.inputs if i.is_required]
    optional = [i.name for i in launch.inputs if not i.is_required]
    parts = [f"needs {', '.join(required)}"] if required else []
    parts += [f"optional {', '.join(optional)}"] if optional else []
    return "; ".join([*parts, *(["may ask for a login"] if launch.may_need_login else [])])


def _build_server(hit: RegistryHit) -> RegistryServerResponse:
    entry = hit.entry
    return {
        "name": entry.name,
        "registry": entry.registry,
        "version": entry.version,
        "digest": entry.digest,
        "publisher": entry.publisher,
        "title": entry.title,
        "description": entry.description,
        "status": entry.status,
        "statusMessage": entry.status_message,
        "updatedAt": entry.updated_at,
        "confidence": hit.confidence,
        "suggestedName": suggest_name(entry),
        "launches": [_build_launch(launch) for launch in list_launches(entry)],
        "definition": dict(entry.definition),
    }


def _build_launch(launch: RegistryLaunch) -> RegistryLaunchResponse:
    return {
        "about": launch.about,
        "runs": describe_runs(launch),
        "needs": describe_needs(launch),
        "problem": launch.problem or None,
        "packageDigest": launch.package_digest or None,
    }
