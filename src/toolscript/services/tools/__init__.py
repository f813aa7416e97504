"""The read side of the catalogue: search, list, describe and call tools."""
