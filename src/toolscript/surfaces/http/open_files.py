"""The number of files that this process may open. It limits connections: each connection is an open file."""

from __future__ import annotations

import sys
from contextlib import suppress

MAX_OPEN_FILES = 4096
# For everything else: 100 connections that are being refused; pipes of servers, connections to stores, files.
RESERVED_FILES = 200
MIN_CONNECTIONS = 10


def raise_file_limit() -> None:
    """Allows this process to open MAX_OPEN_FILES, or as many as the system lets it. The usual limits are 256 on macOS
    and 1,024 on Linux."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS and containers may allow less than their limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def count_possible_connections() -> int:
    """The number of connections that leaves RESERVED_FILES for everything else."""
    if sys.platform == "win32":
        return MAX_OPEN_FILES
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else max(MIN_CONNECTIONS, soft - RESERVED_FILES)
