-- The line of a text file where a chunk begins; null: not known.

ALTER TABLE ${knowledge}knowledge_chunks ADD COLUMN line BIGINT;
