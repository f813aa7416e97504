-- What a person, or the first listing of a server, has approved of each item, and what its server offers instead while
-- that is in quarantine. Times are in seconds since 1970.

ALTER TABLE ${mcp}tools ADD COLUMN quarantine TEXT NOT NULL DEFAULT '';

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
