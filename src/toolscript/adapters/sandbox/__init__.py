"""What the sandboxes for Python and TypeScript share: bounded JSON, and hints about names that programs lack."""
