"""Who may call, and how often, in SQL."""
