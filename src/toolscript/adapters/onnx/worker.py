"""Where queries that come together are embedded: a process of its own. It takes texts from a socket and answers with
vectors, for as long as there is somebody at the other end."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from pathlib import Path

from toolscript.adapters.onnx.embedder import Lane
from toolscript.adapters.onnx.worker_client import LONGEST, NUMBER, READY


def main() -> None:
    """Embeds until the other end is closed. Arguments: the socket's number; the model's files, how its words are
    pooled, its window, and how many threads there are to be, as a JSON array."""
    for told in (signal.SIGINT, signal.SIGTERM):  # whoever started us is told too, and says when
        signal.signal(told, signal.SIG_IGN)
    onnx, tokenizer, pooling, window, workers = json.loads(sys.argv[2])
    with socket.socket(fileno=int(sys.argv[1])) as theirs:
        lane = Lane(Path(onnx), Path(tokenizer), pooling=pooling, window=window, device="cpu", threads=1, workers=1)
        theirs.send(READY)
        threads = [threading.Thread(target=_serve, args=(theirs, lane)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _serve(theirs: socket.socket, lane: Lane) -> None:
    try:
        while come := theirs.recv(LONGEST + NUMBER):
            theirs.send(come[:NUMBER] + _vector(lane, come[NUMBER:]))
    except OSError:
        return  # nobody is there any more


def _vector(lane: Lane, text: bytes) -> bytes:
    try:
        return bytes(lane.embed_batch([text.decode()])[0].data)
    except Exception:  # noqa: BLE001  (whoever asked does without us, and will find out what is wrong)
        return b""
