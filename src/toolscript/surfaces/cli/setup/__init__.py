"""`toolscript setup`: moves the servers of MCP clients behind Toolscript, and back."""
