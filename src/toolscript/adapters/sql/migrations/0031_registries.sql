-- Servers that registries list and that are not connected; of each the version to offer. `changed_until` is the time of
-- the newest change that a registry has sent: the next synchronisation asks for later ones.

CREATE TABLE ${mcp}registries (
    url TEXT PRIMARY KEY,
    changed_until TEXT NOT NULL,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE ${mcp}registry_entries (
    id TEXT PRIMARY KEY,
    registry TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    status VARCHAR(16) NOT NULL,
    status_message TEXT NOT NULL,
    changed_at TEXT NOT NULL,
    is_latest BOOLEAN NOT NULL,
    definition JSON NOT NULL,
    terms $bytes NOT NULL,
    updated_at $time NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX registry_entries_by_registry ON ${mcp}registry_entries (registry);
CREATE INDEX registry_entries_by_name ON ${mcp}registry_entries (name);
