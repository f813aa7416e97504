-- Programs that are saved under a name and are tools. Every version stays; the one with the highest number counts.
-- Times are in seconds since 1970.

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
    PRIMARY KEY (name, version)
);
