-- Named keys with scopes. Only the SHA-256 of a secret is stored. Times are in seconds since 1970.

CREATE TABLE ${mcp}access_keys (
    name VARCHAR(64) PRIMARY KEY,
    digest VARCHAR(64) NOT NULL UNIQUE,
    scopes $texts NOT NULL,
    tenant TEXT,
    plan TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION
);
