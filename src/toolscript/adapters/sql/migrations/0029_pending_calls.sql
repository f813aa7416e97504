-- Calls that wait for a person's approval, because the caller's client cannot ask, and what was decided about them.

CREATE TABLE ${mcp}pending_calls (
    id VARCHAR(16) PRIMARY KEY,
    binding VARCHAR(64) NOT NULL,
    caller TEXT NOT NULL,
    profile TEXT NOT NULL,
    tool_id TEXT NOT NULL,
    server TEXT NOT NULL,
    arguments TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    state VARCHAR(16) NOT NULL
);
