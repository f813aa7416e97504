-- When a gateway or a sync has last named these servers, in seconds since 1970; 0 in rows of an earlier version, until
-- the next one does. Configurations that nobody uses any more are forgotten.

ALTER TABLE ${mcp}configured_servers ADD COLUMN seen_at DOUBLE PRECISION NOT NULL DEFAULT 0;
