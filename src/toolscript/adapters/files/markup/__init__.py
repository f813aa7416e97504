"""Texts with markup: HTML, EPUB, Markdown, reStructuredText, and plain text, marked up by its looks."""
