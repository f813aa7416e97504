"""Sources that can be cited: ingest, transfer and search."""
