"""`toolscript doctor`: looks at everything that a working installation needs, and changes nothing."""
