"""What several services share: deadlines, events, concurrency, caches."""
