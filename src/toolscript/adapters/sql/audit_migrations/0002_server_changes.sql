-- Changes of servers (kind 3): few among many calls.

CREATE INDEX audit_server_changes ON ${mcp}audit_events (id) WHERE kind = 3;
