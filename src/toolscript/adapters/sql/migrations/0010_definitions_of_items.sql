-- Prompts and resources as their servers list them, for clients that read MCP's own lists.

ALTER TABLE ${mcp}tools ADD COLUMN definition JSON;
