"""Finding and reading the files that commands are given."""
