"""Verifying bearer tokens."""
