"""The worker process that reads a document: its bytes in, lines of JSON out. Aliases of YAML can grow without end, and
a large document keeps Python's lock for seconds: neither happens in the gateway."""

from __future__ import annotations

import json
import sys

from toolscript.adapters.openapi.document import BadDocument, parse_document
from toolscript.adapters.openapi.operations import write_lines
from toolscript.adapters.workers.limits import limit_worker

MEMORY_BYTES = 3 * 2**30
MAX_SECONDS = 120


def main() -> None:
    """Reads the document from standard input. Arguments are the parameters that the configuration gives."""
    limit_worker(memory_bytes=MEMORY_BYTES, processor_seconds=MAX_SECONDS)
    try:
        document = parse_document(sys.stdin.buffer.read())
        for line in write_lines(document, frozenset(sys.argv[1:])):
            sys.stdout.write(f"{line}\n")
    except BadDocument as error:
        sys.stdout.write(f"{json.dumps({'error': str(error)})}\n")
    except MemoryError:
        sys.stdout.write(f"{json.dumps({'error': 'needs too much memory'})}\n")
    sys.stdout.flush()
