"""A server that speaks MongoDB's protocol, for tests: secantusdb in a process of its own, on a port that was free.

`python -m tests.servers.mongo FOLDER` prints one line of JSON with the URI, and ends with its input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from tests.servers.processes import run_server

ADVICE = "What to do: run `make test`, which installs it, or set TOOLSCRIPT_TEST_MONGO_URL to a MongoDB."


@contextmanager
def run_mongo() -> Iterator[str]:
    """Runs a server until the block ends, which kills it, and yields its URI. Raises ServerFailed when it cannot
    start."""
    with TemporaryDirectory(prefix="mongo-") as folder:
        command = [sys.executable, "-m", "tests.servers.mongo", folder]
        with run_server("The stand-in for MongoDB", command, ADVICE, kill=True) as ready:
            yield ready["uri"]


def main() -> None:
    from secantus import SecantusDBServer

    with SecantusDBServer(storage_path=sys.argv[1], cache_size="64M") as server:
        sys.stdout.write(json.dumps({"uri": server.uri}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
