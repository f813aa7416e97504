"""The configuration files that name MCP servers."""
