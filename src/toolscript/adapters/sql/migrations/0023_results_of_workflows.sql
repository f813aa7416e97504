-- The JSON Schema of what a workflow returns; none if nothing is known of it.

ALTER TABLE ${mcp}workflows ADD COLUMN result JSON;
