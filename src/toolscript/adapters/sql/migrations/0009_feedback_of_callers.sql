-- The same request of several callers is a success of each: a caller takes back its own, and nobody else's.

CREATE TABLE ${mcp}feedback_requests (
    item_id TEXT NOT NULL,
    digest VARCHAR(32) NOT NULL,
    request TEXT NOT NULL,
    caller TEXT NOT NULL,
    recorded_at DOUBLE PRECISION NOT NULL,
    model TEXT NOT NULL,
    vector $bytes,
    PRIMARY KEY (item_id, digest, caller)
);

-- Vectors are saved by the digests of the requests.
CREATE INDEX idx_feedback_requests_digest ON ${mcp}feedback_requests (digest);

-- All requests of a caller are counted, and the oldest deleted.
CREATE INDEX idx_feedback_requests_caller ON ${mcp}feedback_requests (caller, recorded_at);

INSERT INTO ${mcp}feedback_requests (item_id, digest, request, caller, recorded_at, model, vector)
SELECT item_id, digest, request, caller, recorded_at, model, vector FROM ${mcp}feedback_successes;

DROP TABLE ${mcp}feedback_successes;
