"""The interfaces that services need and adapters implement, in terms of the domain.

Ports that do I/O are async. Each method states its promise; the contract tests in `tests/contracts/` check every
adapter against it. The examples in the docstrings run as tests.
"""
