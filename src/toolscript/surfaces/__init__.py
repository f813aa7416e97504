"""The interfaces for people and programs: HTTP, MCP and the command line. Parse, call one service, render."""
