-- What made a call: run_code, or a version of a workflow. Empty for calls of agents and people.

ALTER TABLE ${mcp}audit_events ADD COLUMN called_by TEXT NOT NULL DEFAULT '';
