"""One file per use case: what surfaces call."""
