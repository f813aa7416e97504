-- Whether a workflow calls only tools that change nothing.

ALTER TABLE ${mcp}workflows ADD COLUMN is_read_only BOOLEAN NOT NULL DEFAULT FALSE;
