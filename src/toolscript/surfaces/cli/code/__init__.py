"""Commands of code mode."""
