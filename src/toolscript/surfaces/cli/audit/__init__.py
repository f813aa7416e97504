"""The command for the audit."""
