-- The sum of an owner's results, which every save needs.

CREATE INDEX idx_results_owner ON ${mcp}results (owner, expires_at, handle, bytes);
