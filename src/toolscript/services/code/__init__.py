"""Code mode: runs programs of agents, whose calls of tools take the same road as all other calls."""
