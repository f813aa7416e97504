-- Whether only the rules have looked at an approved definition: a language model reads it next, where there is one.

ALTER TABLE ${mcp}pins ADD COLUMN awaits_review BOOLEAN NOT NULL DEFAULT FALSE;
