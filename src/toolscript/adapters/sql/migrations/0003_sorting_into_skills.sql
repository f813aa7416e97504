-- What sorting items into skills needs to remember.

-- Which digest of an item was last sorted, and by whom; '' is not at all.
ALTER TABLE ${mcp}tools ADD COLUMN classified TEXT NOT NULL DEFAULT '';

-- Skills that came with a seed and that no person has changed since: they go with the next one that lacks them.
ALTER TABLE ${mcp}skill_categories ADD COLUMN is_seeded BOOLEAN NOT NULL DEFAULT FALSE;
-- Every skill that a seed has named so far; what a person has removed of them, no seed brings back.
CREATE TABLE ${mcp}seeded_skills (
    id VARCHAR(64) PRIMARY KEY,
    is_removed BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE TABLE ${mcp}skill_seeds (
    digest TEXT NOT NULL,
    seeded_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);

-- Suggestions come and go; the number of one that is gone must never name another. Nothing has written any before
-- this version, so the table is made anew.
DROP TABLE ${mcp}skill_suggestions;
CREATE TABLE ${mcp}skill_suggestions (
    id $number PRIMARY KEY $unrepeated,
    suggested_name VARCHAR(255) NOT NULL,
    suggested_description TEXT NOT NULL,
    keywords $texts NOT NULL,
    examples $texts NOT NULL,
    source_tool_id INTEGER REFERENCES ${mcp}tools (id) ON DELETE SET NULL,
    status VARCHAR(32) NOT NULL DEFAULT 'pending',
    reviewed_by VARCHAR(255),
    created_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_skill_suggestions_source ON ${mcp}skill_suggestions (source_tool_id);
