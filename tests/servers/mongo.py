"""A server that speaks MongoDB's protocol, for tests: secantusdb in a process of its own, on a port that was free.

`python mongo.py FOLDER` prints one line of JSON that says where it listens, and ends with its input.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving_mongo(folder: Path) -> Iterator[str]:
    """The URI of a server that keeps its files in that folder for as long as the block lasts."""
    command = [sys.executable, "-P", __file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["uri"]
        finally:
            process.kill()


def main() -> None:
    from secantus import SecantusDBServer

    with SecantusDBServer(storage_path=sys.argv[1], cache_size="64M") as server:
        sys.stdout.write(json.dumps({"uri": server.uri}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
