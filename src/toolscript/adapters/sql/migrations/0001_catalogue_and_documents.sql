-- The catalogue (items, skills, assignments, suggestions), documents by tenant, and term counts.
-- Each database has its own values for words with a dollar sign: toolscript/adapters/sql/session.py.

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
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_tools_server ON ${mcp}tools (server);

CREATE TABLE ${mcp}skill_categories (
    id VARCHAR(64) PRIMARY KEY,
    name VARCHAR(255) NOT NULL,
    description TEXT NOT NULL,
    parent_domain VARCHAR(64),
    keywords $texts NOT NULL,
    examples $texts NOT NULL,
    is_active BOOLEAN NOT NULL DEFAULT TRUE,
    created_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
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

CREATE TABLE ${mcp}skill_suggestions (
    id $number PRIMARY KEY,
    suggested_name VARCHAR(255) NOT NULL,
    suggested_description TEXT NOT NULL,
    source_tool_id INTEGER REFERENCES ${mcp}tools (id) ON DELETE SET NULL,
    status VARCHAR(32) NOT NULL DEFAULT 'pending',
    reviewed_by VARCHAR(255),
    created_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE ${documents}documents (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    metadata JSON NOT NULL,
    digest VARCHAR(64) NOT NULL,
    terms $bytes NOT NULL,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (tenant, id)
);

-- How many texts of a scope hold a term; term -1 counts the texts themselves.
CREATE TABLE ${documents}term_counts (
    scope TEXT NOT NULL,
    term INTEGER NOT NULL,
    texts INTEGER NOT NULL,
    PRIMARY KEY (scope, term)
);
