"""Responses as JSON, the same on every surface."""
