-- What the gateways on one database share beside the catalogue itself.

-- Increased by every transaction that changes the catalogue, and after changes of its index.
CREATE TABLE ${mcp}catalogue_version (version BIGINT NOT NULL);
INSERT INTO ${mcp}catalogue_version (version) VALUES (1);

-- The configurations that name a server. Its tools are retired when none is left.
CREATE TABLE ${mcp}configured_servers (
    server TEXT NOT NULL,
    configuration TEXT NOT NULL,
    PRIMARY KEY (server, configuration)
);

-- Rate limits: the time, in seconds, at which a bucket is full again.
CREATE TABLE ${mcp}rate_buckets (
    name TEXT PRIMARY KEY,
    full_again DOUBLE PRECISION NOT NULL
);
