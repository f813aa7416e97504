"""The vector index on PostgreSQL with pgvector."""
