-- Ingest jobs. A file is leased to a worker until a time; a lease that has ended can be taken over. Contents are those
-- of uploaded files, until they are done. Times are in seconds since 1970.

CREATE TABLE ${mcp}jobs (
    id VARCHAR(64) PRIMARY KEY,
    target VARCHAR(16) NOT NULL,
    owner TEXT NOT NULL,
    details JSON NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    place TEXT NOT NULL,
    skipped JSON NOT NULL,
    is_cancelled BOOLEAN NOT NULL
);
CREATE INDEX jobs_of_owner ON ${mcp}jobs (target, owner, created_at);

CREATE TABLE ${mcp}job_files (
    job_id VARCHAR(64) NOT NULL REFERENCES ${mcp}jobs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    pages $texts NOT NULL,
    size $big_number NOT NULL,
    state VARCHAR(16) NOT NULL,
    attempts INTEGER NOT NULL,
    steps_done INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    added INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    passages INTEGER NOT NULL,
    title TEXT NOT NULL,
    problem TEXT NOT NULL,
    warnings $texts NOT NULL,
    leased_by TEXT NOT NULL,
    leased_until DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (job_id, number)
);
CREATE INDEX job_files_open ON ${mcp}job_files (number, job_id) WHERE state IN ('waiting', 'running');

CREATE TABLE ${mcp}job_contents (
    job_id VARCHAR(64) NOT NULL REFERENCES ${mcp}jobs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    content $bytes NOT NULL,
    PRIMARY KEY (job_id, number)
);
