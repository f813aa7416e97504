"""Who may use the gateway: signing in, keys, and approvals of calls."""
