"""Results of tools that are too large for a context."""
