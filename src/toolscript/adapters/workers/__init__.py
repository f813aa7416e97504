"""Processes and threads that take work off the event loop, and the limits of worker processes."""
