"""Documents of tenants: ingest and search."""
