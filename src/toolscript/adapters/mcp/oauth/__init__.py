"""OAuth to MCP servers: finds their authorization servers, logs in, renews tokens and sends them."""
