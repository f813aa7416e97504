"""Where events, metrics and spans go."""
