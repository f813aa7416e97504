"""Every adapter of the ports of the index and of knowledge, by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolscript.adapters.memory import MemoryIndex
from toolscript.adapters.qdrant.edge import QdrantEdgeIndex
from toolscript.adapters.qdrant.server import QdrantServerIndex
from toolscript.adapters.sql.database import Database
from toolscript.adapters.sql.knowledge import SqlKnowledge, SqlKnowledgeReader
from toolscript.ports.indexes import VectorIndex
from toolscript.ports.stores import KnowledgeReader, KnowledgeStore

SERVER_URL = os.environ.get("TOOLSCRIPT_TEST_QDRANT_URL")
INDEXES = [
    "memory",
    "qdrant-edge",
    "qdrant-client-local",
    "pgvector",
    *(["qdrant-server"] if SERVER_URL else []),
]

LIBRARIES = ["sqlite-file", "sqlite-memory", "postgres", "mongo"]


def open_index(kind: str, folder: Path, request: pytest.FixtureRequest) -> VectorIndex:
    """An index of that kind. A server may still have the collections of earlier tests."""
    match kind:
        case "pgvector":
            from toolscript.adapters.pgvector.index import PgVectorIndex

            return PgVectorIndex(request.getfixturevalue("postgres_server"))
        case "memory":
            return MemoryIndex()
        case "qdrant-edge":
            return QdrantEdgeIndex(folder / "index")
        case "qdrant-client-local":
            from qdrant_client import AsyncQdrantClient

            return QdrantServerIndex(AsyncQdrantClient(":memory:"))
        case "qdrant-server":
            return QdrantServerIndex.at(str(SERVER_URL))
        case _:
            raise ValueError(f"no index is opened for {kind!r}")


def open_knowledge(kind: str, folder: Path, request: pytest.FixtureRequest) -> KnowledgeStore:
    """An empty store of knowledge of that kind."""
    match kind:
        case "mongo":
            from toolscript.adapters.mongo.knowledge import MongoKnowledge

            return MongoKnowledge.at(request.getfixturevalue("mongo"))
        case _:
            return SqlKnowledge(Database(_address(kind, folder, request)))


def open_reader(kind: str, folder: Path, request: pytest.FixtureRequest) -> KnowledgeReader:
    """A reader of the store that `open_knowledge` has opened; not for a database in memory."""
    match kind:
        case "mongo":
            from toolscript.adapters.mongo.knowledge import MongoKnowledgeReader

            return MongoKnowledgeReader.at(request.getfixturevalue("mongo"), timeout_seconds=30.0)
        case _:
            return SqlKnowledgeReader(Database(_address(kind, folder, request), read_only=True))


def _address(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    match kind:
        case "sqlite-file":
            return f"sqlite:///{folder / 'store.db'}"
        case "sqlite-memory":
            return "sqlite://"
        case _:
            return str(request.getfixturevalue("postgres"))
