"""Commands about what is trusted."""
