"""The catalogue of servers that are not connected."""
