-- Answered questions and used approvals, until the time at which they would expire anyway, in seconds since 1970.

CREATE TABLE ${mcp}used_approvals (
    ticket VARCHAR(64) PRIMARY KEY,
    expires_at DOUBLE PRECISION NOT NULL
);
