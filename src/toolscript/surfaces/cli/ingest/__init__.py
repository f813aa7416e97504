"""Commands that ingest files, and show the jobs that do it."""
