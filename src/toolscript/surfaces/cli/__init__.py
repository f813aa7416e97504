"""The `toolscript` command."""
