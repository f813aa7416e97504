"""The response types, each beside the function that builds it, the same on every surface."""
