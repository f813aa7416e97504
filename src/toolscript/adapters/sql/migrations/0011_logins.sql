-- Logins at the authorization servers of MCP servers. The address is a SHA-256 of the server's URL; tokens are encrypted
-- with a key of the installation. Times are in seconds since 1970.

CREATE TABLE ${mcp}logins (
    server TEXT NOT NULL,
    address VARCHAR(64) NOT NULL,
    user_name TEXT NOT NULL,
    login_id VARCHAR(64) NOT NULL,
    version BIGINT NOT NULL,
    claimed_until DOUBLE PRECISION NOT NULL,
    wanted_scope TEXT NOT NULL,
    sealed $bytes NOT NULL,
    PRIMARY KEY (server, address, user_name)
);
