-- Results of tools that were too large for a context, compressed, for the caller that got them. Times are in seconds
-- since 1970. The content is the last column: sums of sizes do not read it.

CREATE TABLE ${mcp}results (
    handle VARCHAR(32) PRIMARY KEY,
    owner TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    bytes BIGINT NOT NULL,
    content $bytes NOT NULL
);
CREATE INDEX idx_results_age ON ${mcp}results (expires_at, handle, bytes);
