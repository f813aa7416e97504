"""Registries of MCP servers, over HTTP."""
