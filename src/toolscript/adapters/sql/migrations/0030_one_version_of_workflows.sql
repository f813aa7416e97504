-- Of each workflow, the newest version stays; tests of workflows go.

CREATE TABLE ${mcp}newest_workflows (
    name VARCHAR(64) PRIMARY KEY,
    description TEXT NOT NULL,
    language VARCHAR(16) NOT NULL,
    source TEXT NOT NULL,
    parameters JSON NOT NULL,
    result JSON,
    is_read_only BOOLEAN NOT NULL,
    saved_at DOUBLE PRECISION NOT NULL,
    saved_by TEXT NOT NULL,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);
INSERT INTO ${mcp}newest_workflows (
    name, description, language, source, parameters, result, is_read_only, saved_at, saved_by
) SELECT name, description, language, source, parameters, result, is_read_only, saved_at, saved_by
FROM ${mcp}workflows WHERE (name, version) IN (SELECT name, max(version) FROM ${mcp}workflows GROUP BY name);
DROP TABLE ${mcp}workflows;
ALTER TABLE ${mcp}newest_workflows RENAME TO workflows;
