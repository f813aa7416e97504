"""Python programs in Monty, an interpreter that can do nothing but what its host offers."""
