"""One search engine for everything an agent needs to find."""

__version__ = "0.1.0"
