"""What in a catalogue leads searches astray, and descriptions that may change that."""
