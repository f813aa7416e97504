"""Models behind any OpenAI-compatible API."""
