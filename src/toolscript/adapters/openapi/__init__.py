"""Servers that are an HTTP API with an OpenAPI document."""
