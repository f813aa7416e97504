"""Code mode: runs programs of agents. Their calls of tools take the same way as all other calls."""
