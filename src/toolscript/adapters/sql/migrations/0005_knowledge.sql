-- Knowledge: sources (books, papers), their chunks in reading order, and what was extracted from these. A position's
-- empty chapter or section, and a page that is null, are not known.

CREATE TABLE ${knowledge}knowledge_sources (
    id TEXT PRIMARY KEY,
    type TEXT NOT NULL,
    title TEXT NOT NULL,
    authors $texts NOT NULL,
    path TEXT NOT NULL,
    ingested_at TEXT NOT NULL,
    status TEXT NOT NULL,
    metadata JSON NOT NULL,
    schema_version INTEGER NOT NULL,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE ${knowledge}knowledge_chunks (
    id TEXT PRIMARY KEY,
    source_id TEXT NOT NULL REFERENCES ${knowledge}knowledge_sources (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    content TEXT NOT NULL,
    chapter TEXT NOT NULL,
    section TEXT NOT NULL,
    page BIGINT,
    token_count BIGINT NOT NULL,
    schema_version INTEGER NOT NULL,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_knowledge_chunks_source ON ${knowledge}knowledge_chunks (source_id, number);

-- An extraction may outlive its chunk: it is of a source, and says only where in it it was found.
CREATE TABLE ${knowledge}knowledge_extractions (
    id TEXT PRIMARY KEY,
    source_id TEXT NOT NULL REFERENCES ${knowledge}knowledge_sources (id) ON DELETE CASCADE,
    chunk_id TEXT NOT NULL,
    type TEXT NOT NULL,
    content JSON NOT NULL,
    topics $texts NOT NULL,
    extracted_at TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_knowledge_extractions_source ON ${knowledge}knowledge_extractions (source_id);
