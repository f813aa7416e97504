"""Source text for the tools of a catalogue: typed clients in two languages, and one-line signatures.

Pure functions from items to text, without I/O. `schemas.py` reads a tool's JSON Schemas into the shapes of `shapes.py`;
each language module writes the shapes in its own syntax.
"""
