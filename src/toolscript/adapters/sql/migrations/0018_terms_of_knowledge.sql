-- In how many chunks of a source each term occurs; term -1 counts the chunks. One row per source and term, so that
-- replacing a source replaces its counts.

CREATE TABLE ${knowledge}knowledge_terms (
    term INTEGER NOT NULL,
    source_id TEXT NOT NULL REFERENCES ${knowledge}knowledge_sources (id) ON DELETE CASCADE,
    texts INTEGER NOT NULL,
    PRIMARY KEY (term, source_id)
);
CREATE INDEX idx_knowledge_terms_source ON ${knowledge}knowledge_terms (source_id);
