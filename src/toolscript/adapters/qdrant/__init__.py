"""The vector index on Qdrant: its engine in this process, or a server."""
