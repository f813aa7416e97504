-- Which documents the index is behind on. What waits and is not among the documents was deleted. Documents of before
-- are in the index whole; they wait to be there in passages. Every writer has marks of its own, so that one that has
-- done its work does not take away what another one, perhaps no longer alive, has yet to do; `since` is in seconds.

CREATE TABLE ${documents}documents_waiting (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    writer TEXT NOT NULL,
    since DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (tenant, id, writer)
);
INSERT INTO ${documents}documents_waiting (tenant, id, writer, since) SELECT tenant, id, '', 0 FROM ${documents}documents;

-- For listings, which go by code points whatever language the database was made for.
CREATE INDEX idx_documents_in_order ON ${documents}documents (tenant, id $by_code_point);
