"""What code mode costs and saves."""
