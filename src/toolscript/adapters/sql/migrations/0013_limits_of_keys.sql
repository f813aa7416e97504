-- How many calls of tools a key allows, a minute and at a time; null: any number.

ALTER TABLE ${mcp}access_keys ADD COLUMN calls_per_minute INTEGER;

ALTER TABLE ${mcp}access_keys ADD COLUMN concurrent_calls INTEGER;
