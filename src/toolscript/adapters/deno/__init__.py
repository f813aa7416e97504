"""TypeScript programs in Deno, without any of its permissions."""
