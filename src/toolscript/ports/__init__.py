"""What the core needs of the world outside, in the domain's words.

Ports that do I/O are async. Each method says what it promises; the contract tests in `tests/contracts/` hold every
adapter to it.
"""
