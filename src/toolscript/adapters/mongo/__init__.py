"""The knowledge store on MongoDB."""
