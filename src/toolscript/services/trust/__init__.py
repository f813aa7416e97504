"""Trust in the definitions of servers: what is approved, what has changed, what is suspicious."""
