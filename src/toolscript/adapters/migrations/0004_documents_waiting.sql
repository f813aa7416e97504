-- Which documents the index is behind on. What waits and is not among the documents was deleted. Documents of before
-- are in the index whole; they wait to be there in passages.

CREATE TABLE ${documents}documents_waiting (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
);
INSERT INTO ${documents}documents_waiting (tenant, id) SELECT tenant, id FROM ${documents}documents;

-- For listings, which go by code points whatever language the database was made for.
CREATE INDEX idx_documents_in_order ON ${documents}documents (tenant, id $by_code_point);
