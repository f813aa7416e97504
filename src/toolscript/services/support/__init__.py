"""What several services share: events, concurrency, caches."""
