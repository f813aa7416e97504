"""Every adapter of the index port, by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.qdrant_edge import QdrantEdgeIndex
from toolscript.adapters.qdrant_server import QdrantServerIndex
from toolscript.ports import VectorIndex

SERVER_URL = os.environ.get("TOOLSCRIPT_TEST_QDRANT_URL")
INDEXES = [
    "memory",
    "qdrant-edge",
    "qdrant-edge-copied",
    "qdrant-client-local",
    "pgvector",
    *(["qdrant-server"] if SERVER_URL else []),
]


def open_index(kind: str, folder: Path, request: pytest.FixtureRequest) -> VectorIndex:
    """An index of that kind. On a server the collections of earlier tests may still be there."""
    match kind:
        case "pgvector":
            from toolscript.adapters.pgvector import PgVectorIndex

            return PgVectorIndex(request.getfixturevalue("postgres_server"))
        case "memory":
            return MemoryIndex()
        case "qdrant-edge":
            return QdrantEdgeIndex(folder / "index")
        case "qdrant-edge-copied":
            return QdrantEdgeIndex(folder / "index", searches_before_copy=0)
        case "qdrant-client-local":
            from qdrant_client import AsyncQdrantClient

            return QdrantServerIndex(AsyncQdrantClient(":memory:"))
        case _:
            return QdrantServerIndex.at(str(SERVER_URL))
