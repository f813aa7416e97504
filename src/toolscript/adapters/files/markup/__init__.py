"""Texts with markup: HTML, EPUB, Markdown, reStructuredText, and plain text whose looks are its markup."""
