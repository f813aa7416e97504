"""Reads agent skills from folders."""
