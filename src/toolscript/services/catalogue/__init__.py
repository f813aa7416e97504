"""The catalogue: sync, the points of tools and skills in the index, the snapshot that searches read, visibility."""
