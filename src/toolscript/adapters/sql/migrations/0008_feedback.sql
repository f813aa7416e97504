-- Feedback: the requests that tools served, and how far their vectors moved toward these. Of a caller only the name of
-- the key is stored. Times are in seconds since 1970, vectors are 32-bit floats. The digest is part of the key instead
-- of the request, which can be too long for one.

CREATE TABLE ${mcp}feedback_successes (
    item_id TEXT NOT NULL,
    digest VARCHAR(32) NOT NULL,
    request TEXT NOT NULL,
    caller TEXT NOT NULL,
    recorded_at DOUBLE PRECISION NOT NULL,
    model TEXT NOT NULL,
    vector $bytes,
    PRIMARY KEY (item_id, digest)
);

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
