-- The version of the way in which the terms of a document were read: a gateway reads those of earlier versions again.

ALTER TABLE ${documents}documents ADD COLUMN terms_version INTEGER NOT NULL DEFAULT 1;
CREATE INDEX idx_documents_terms_version ON ${documents}documents (terms_version, tenant, id);
