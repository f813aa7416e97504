-- Events of the kinds in domain/audit.py, where the id is explained, too. `called_by` is the program that made a call:
-- run_code, or a workflow; empty for calls of agents and people.

CREATE TABLE ${mcp}audit_events (
    id $big_number PRIMARY KEY,
    kind SMALLINT NOT NULL,
    tool TEXT NOT NULL,
    server TEXT NOT NULL,
    caller TEXT NOT NULL,
    profile TEXT NOT NULL,
    surface TEXT NOT NULL,
    outcome TEXT NOT NULL,
    ms DOUBLE PRECISION NOT NULL,
    bytes BIGINT NOT NULL,
    hits INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    details TEXT NOT NULL,
    called_by TEXT NOT NULL DEFAULT ''
);

CREATE INDEX audit_events_by_tool ON ${mcp}audit_events (kind, tool, id);
CREATE INDEX audit_events_by_server ON ${mcp}audit_events (kind, server, id);
CREATE INDEX audit_events_by_caller ON ${mcp}audit_events (kind, caller, id);
CREATE INDEX audit_errors ON ${mcp}audit_events (kind, id) WHERE outcome <> 'ok';
-- Changes of servers (kind 3): few among many calls.
CREATE INDEX audit_server_changes ON ${mcp}audit_events (id) WHERE kind = 3;
