"""Servers that a registry of MCP servers lists, and that are not connected."""
