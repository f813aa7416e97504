-- The catalogue, documents by tenant, knowledge, and what a gateway keeps beside them. Times are in seconds since 1970.
-- Each database has its own values for words with a dollar sign: toolscript/adapters/sql/session.py.

-- Servers' tools, prompts and resources. `digest` is what a sync compares without reading the rest, `classified` the
-- digest that was last sorted into skills, and by whom, `definition` what prompts and resources are listed as, and
-- `quarantine` why the item cannot be called.
CREATE TABLE ${mcp}tools (
    id $number PRIMARY KEY,
    item_id TEXT NOT NULL UNIQUE,
    server TEXT NOT NULL,
    type VARCHAR(16) NOT NULL,
    name TEXT NOT NULL,
    title TEXT,
    description TEXT NOT NULL,
    input_schema JSON,
    output_schema JSON,
    annotations JSON,
    terms $bytes NOT NULL,
    is_active BOOLEAN NOT NULL DEFAULT TRUE,
    created_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    digest VARCHAR(64) NOT NULL DEFAULT '',
    classified TEXT NOT NULL DEFAULT '',
    definition JSON,
    quarantine TEXT NOT NULL DEFAULT ''
);
CREATE INDEX idx_tools_server ON ${mcp}tools (server);

-- `is_seeded`: came with a seed, and no person has changed it since. It goes with the next seed that lacks it.
CREATE TABLE ${mcp}skill_categories (
    id VARCHAR(64) PRIMARY KEY,
    name VARCHAR(255) NOT NULL,
    description TEXT NOT NULL,
    parent_domain VARCHAR(64),
    keywords $texts NOT NULL,
    examples $texts NOT NULL,
    is_active BOOLEAN NOT NULL DEFAULT TRUE,
    created_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    is_seeded BOOLEAN NOT NULL DEFAULT FALSE
);

CREATE TABLE ${mcp}tool_skill_assignments (
    id $number PRIMARY KEY,
    tool_id INTEGER NOT NULL REFERENCES ${mcp}tools (id) ON DELETE CASCADE,
    skill_id VARCHAR(64) NOT NULL REFERENCES ${mcp}skill_categories (id) ON DELETE CASCADE,
    confidence DOUBLE PRECISION NOT NULL,
    is_primary BOOLEAN NOT NULL DEFAULT FALSE,
    origin VARCHAR(16) NOT NULL,
    assigned_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (tool_id, skill_id)
);
CREATE INDEX idx_tool_skill_tool ON ${mcp}tool_skill_assignments (tool_id);
CREATE INDEX idx_tool_skill_skill ON ${mcp}tool_skill_assignments (skill_id);

-- Every skill that a seed has named so far; what a person has removed of them, no seed brings back.
CREATE TABLE ${mcp}seeded_skills (
    id VARCHAR(64) PRIMARY KEY,
    is_removed BOOLEAN NOT NULL DEFAULT FALSE
);

CREATE TABLE ${mcp}skill_seeds (
    digest TEXT NOT NULL,
    seeded_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);

-- Suggestions come and go; the number of one that is gone must never name another. `item_ids` are those that somebody
-- chose for the skill.
CREATE TABLE ${mcp}skill_suggestions (
    id $number PRIMARY KEY $unrepeated,
    suggested_name VARCHAR(255) NOT NULL,
    suggested_description TEXT NOT NULL,
    keywords $texts NOT NULL,
    examples $texts NOT NULL,
    source_tool_id INTEGER REFERENCES ${mcp}tools (id) ON DELETE SET NULL,
    status VARCHAR(32) NOT NULL DEFAULT 'pending',
    reviewed_by VARCHAR(255),
    created_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    item_ids $texts
);
CREATE INDEX idx_skill_suggestions_source ON ${mcp}skill_suggestions (source_tool_id);

-- `terms_version` is the version of the way in which the terms were read: a gateway reads those of earlier versions
-- again.
CREATE TABLE ${documents}documents (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    metadata JSON NOT NULL,
    digest VARCHAR(64) NOT NULL,
    terms $bytes NOT NULL,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    terms_version INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant, id)
);
-- For listings, which go by code points whatever language the database was made for.
CREATE INDEX idx_documents_in_order ON ${documents}documents (tenant, id $by_code_point);
CREATE INDEX idx_documents_terms_version ON ${documents}documents (terms_version, tenant, id);

-- Which documents the index is behind on. What waits and is not among the documents was deleted. Every writer has marks
-- of its own, so that one that has done its work does not take away what another one, perhaps no longer alive, has yet
-- to do.
CREATE TABLE ${documents}documents_waiting (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    writer TEXT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant, id, writer)
);

-- How many texts of a scope hold a term; term -1 counts the texts themselves.
CREATE TABLE ${documents}term_counts (
    scope TEXT NOT NULL,
    term INTEGER NOT NULL,
    texts INTEGER NOT NULL,
    PRIMARY KEY (scope, term)
);

-- Knowledge: sources (books, papers), their chunks in reading order, and what was extracted from these. A position's
-- empty chapter or section, and a page or line that is null, are not known.
-- `line` is that of a text file.
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
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    line BIGINT
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

-- In how many chunks of a source each term occurs; term -1 counts the chunks. One row per source and term, so that
-- replacing a source replaces its counts.
CREATE TABLE ${knowledge}knowledge_terms (
    term INTEGER NOT NULL,
    source_id TEXT NOT NULL REFERENCES ${knowledge}knowledge_sources (id) ON DELETE CASCADE,
    texts INTEGER NOT NULL,
    PRIMARY KEY (term, source_id)
);
CREATE INDEX idx_knowledge_terms_source ON ${knowledge}knowledge_terms (source_id);

-- Named keys with scopes. Only the SHA-256 of a secret is stored. Null as a number of calls
-- allows any number.
CREATE TABLE ${mcp}access_keys (
    name VARCHAR(64) PRIMARY KEY,
    digest VARCHAR(64) NOT NULL UNIQUE,
    scopes $texts NOT NULL,
    tenant TEXT,
    plan TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION,
    calls_per_minute INTEGER,
    concurrent_calls INTEGER
);

-- Increased by every transaction that changes the catalogue, and after changes of its index.
CREATE TABLE ${mcp}catalogue_version (version BIGINT NOT NULL);
INSERT INTO ${mcp}catalogue_version (version) VALUES (1);

-- The configurations that name a server. Its tools are retired when none is left.
CREATE TABLE ${mcp}configured_servers (
    server TEXT NOT NULL,
    configuration TEXT NOT NULL,
    PRIMARY KEY (server, configuration)
);

-- Rate limits: the time, in seconds, at which a bucket is full again.
CREATE TABLE ${mcp}rate_buckets (
    name TEXT PRIMARY KEY,
    full_again DOUBLE PRECISION NOT NULL
);

-- Feedback: the requests that tools served, or, unless `is_right`, that somebody said they are wrong for, and how far
-- their vectors moved toward these. Of a caller only the name of the key is stored; the same request of several callers
-- is one of each, so a caller takes back its own. Vectors are 32-bit floats. The digest is part of the key instead of the
-- request, which can be too long for one.
CREATE TABLE ${mcp}feedback_requests (
    item_id TEXT NOT NULL,
    digest VARCHAR(32) NOT NULL,
    request TEXT NOT NULL,
    caller TEXT NOT NULL,
    recorded_at DOUBLE PRECISION NOT NULL,
    model TEXT NOT NULL,
    vector $bytes,
    is_right BOOLEAN NOT NULL DEFAULT TRUE,
    PRIMARY KEY (item_id, digest, caller)
);
-- Vectors are saved by the digests of the requests.
CREATE INDEX idx_feedback_requests_digest ON ${mcp}feedback_requests (digest);
-- All requests of a caller are counted, and the oldest deleted.
CREATE INDEX idx_feedback_requests_caller ON ${mcp}feedback_requests (caller, recorded_at);

CREATE TABLE ${mcp}feedback_steps (
    item_id TEXT PRIMARY KEY,
    model TEXT NOT NULL,
    item_digest VARCHAR(64) NOT NULL,
    stamp VARCHAR(32) NOT NULL,
    successes INTEGER NOT NULL,
    cosine DOUBLE PRECISION NOT NULL,
    refusal TEXT NOT NULL,
    vector $bytes
);

-- Logins at the authorization servers of MCP servers. The address is a SHA-256 of the server's URL; tokens are encrypted
-- with a key of the installation.
CREATE TABLE ${mcp}logins (
    server TEXT NOT NULL,
    address VARCHAR(64) NOT NULL,
    user_name TEXT NOT NULL,
    login_id VARCHAR(64) NOT NULL,
    version BIGINT NOT NULL,
    claimed_until DOUBLE PRECISION NOT NULL,
    wanted_scope TEXT NOT NULL,
    sealed $bytes NOT NULL,
    PRIMARY KEY (server, address, user_name)
);

-- What a person, or the first listing of a server, has approved of each item, and what its server offers instead while
-- that is in quarantine.
CREATE TABLE ${mcp}pins (
    item_id TEXT PRIMARY KEY,
    server TEXT NOT NULL,
    approved JSON,
    approved_digest VARCHAR(64) NOT NULL,
    offered JSON,
    offered_digest VARCHAR(64) NOT NULL,
    cause VARCHAR(16) NOT NULL,
    reason TEXT NOT NULL,
    passage TEXT NOT NULL,
    state VARCHAR(16) NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_pins_server ON ${mcp}pins (server);

-- Results of tools that were too large for a context, compressed, for the caller that got them. The content is the last
-- column: sums of sizes do not read it.
CREATE TABLE ${mcp}results (
    handle VARCHAR(32) PRIMARY KEY,
    owner TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    bytes BIGINT NOT NULL,
    content $bytes NOT NULL
);
CREATE INDEX idx_results_age ON ${mcp}results (expires_at, handle, bytes);
-- The sum of an owner's results, which every save needs.
CREATE INDEX idx_results_owner ON ${mcp}results (owner, expires_at, handle, bytes);

-- Ingest jobs. A file is leased to a worker until a time; a lease that has ended can be taken over. Contents are those
-- of uploaded files, until they are done.
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

-- Answered questions and used approvals, until the time at which they would expire anyway.
CREATE TABLE ${mcp}used_approvals (
    ticket VARCHAR(64) PRIMARY KEY,
    expires_at DOUBLE PRECISION NOT NULL
);

-- Programs that are saved under a name and are tools. Every version stays; the one with the highest number counts.
-- `result` is the JSON Schema of what a workflow returns, if it is known; `is_read_only`: it calls read-only tools only.
CREATE TABLE ${mcp}workflows (
    name VARCHAR(64) NOT NULL,
    version INTEGER NOT NULL,
    description TEXT NOT NULL,
    language VARCHAR(16) NOT NULL,
    source TEXT NOT NULL,
    parameters JSON NOT NULL,
    cases JSON NOT NULL,
    saved_at DOUBLE PRECISION NOT NULL,
    saved_by TEXT NOT NULL,
    result JSON,
    is_read_only BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (name, version)
);
