"""Checks of arguments against JSON schemas."""
