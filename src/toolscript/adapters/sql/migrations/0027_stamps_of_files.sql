-- How files were when they were last ingested, and the digests of what was made of them, by id: an unchanged file is not
-- read again. Times are in seconds since 1970.

CREATE TABLE ${mcp}file_stamps (
    target VARCHAR(16) NOT NULL,
    owner TEXT NOT NULL,
    path TEXT NOT NULL,
    state VARCHAR(64) NOT NULL,
    made JSON NOT NULL,
    passages INTEGER NOT NULL,
    title TEXT NOT NULL,
    warnings $texts NOT NULL,
    read_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (target, owner, path)
);
CREATE INDEX file_stamps_by_age ON ${mcp}file_stamps (read_at);
