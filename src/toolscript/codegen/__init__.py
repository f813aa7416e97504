"""Source text for the tools of a catalogue: typed clients in two languages, and one-line signatures.

Items in, text out: nothing here reads, writes or waits. What a tool's JSON Schema says is read once, into the
shapes of `shapes.py`; a language is only a way of writing shapes down.
"""
