"""Which definitions of servers are trusted: what is approved, what has changed, what is suspicious."""
