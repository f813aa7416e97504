"""Words, spelling, snippets and chunks of texts."""
