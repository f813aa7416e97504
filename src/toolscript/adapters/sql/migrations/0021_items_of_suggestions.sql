-- The items that somebody chose for a suggested skill.

ALTER TABLE ${mcp}skill_suggestions ADD COLUMN item_ids $texts;
