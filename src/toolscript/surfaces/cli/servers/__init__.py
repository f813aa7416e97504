"""Commands that control the servers of a running gateway."""
