"""Builds the catalogue of servers that are not connected."""

from __future__ import annotations

from toolscript.adapters.registry.client import HttpRegistries
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.registries import SqlRegistries
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.models import Embedder
from toolscript.ports.observability import EventSink
from toolscript.services.registry.catalogue import RegistryCatalogue

__all__ = ["RegistryCatalogue", "open_registry"]


def open_registry(
    database: Database, index: VectorIndex, embedder: Embedder | None, events: EventSink
) -> RegistryCatalogue:
    """Also beside the demo, registries are in the store of real data: what they list is no demo."""
    return RegistryCatalogue(HttpRegistries(), SqlRegistries(database), index, embedder, events)
