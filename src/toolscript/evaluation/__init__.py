"""Data sets in, metrics out: `toolscript eval` measures the services that the surfaces call."""
