-- What a sync compares, without reading the item: '' is the digest of nothing, so older rows are written anew once.

ALTER TABLE ${mcp}tools ADD COLUMN digest VARCHAR(64) NOT NULL DEFAULT '';
