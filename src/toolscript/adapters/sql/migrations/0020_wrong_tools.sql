-- Whether a tool served the request, or somebody said that it is wrong for it.

ALTER TABLE ${mcp}feedback_requests ADD COLUMN is_right BOOLEAN NOT NULL DEFAULT TRUE;
