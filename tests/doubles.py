"""Stand-ins for services on other machines: real HTTP on loopback, with answers that tests decide."""

from __future__ import annotations

import json
import shutil
import threading
import zlib
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np


class HttpDouble(ABC):
    """An HTTP server in a thread. Subclasses answer; `fail_with` makes it answer a status instead."""

    def __init__(self) -> None:
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                double.handle(self, b"")

            def do_HEAD(self) -> None:
                double.handle(self, b"")

            def do_POST(self) -> None:
                double.handle(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            do_PUT, do_DELETE = do_POST, do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.requests: list[str] = []
        self.fail_with: int | None = None

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.requests.append(f"{request.command} {request.path}")
        if self.fail_with:
            self.send(request, self.fail_with, json.dumps({"error": {"message": "no"}}).encode())
        else:
            self.answer(request, body)

    @abstractmethod
    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Sends what the service would."""

    def send(
        self, request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            request.send_header(name, value)
        if not headers or "Content-Length" not in headers:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)


class EmbeddingsApi(HttpDouble):
    """Speaks OpenAI's embeddings protocol; a text's vector is the sum of its words' vectors."""

    def __init__(self, dimensions: int = 16) -> None:
        super().__init__()
        self.dimensions = dimensions
        self.forget_last = False
        self.say_instead: str | None = None

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        if self.say_instead is not None:
            self.send(request, 200, self.say_instead.encode())
            return
        asked = json.loads(body)
        rows = [
            {"object": "embedding", "index": i, "embedding": self._vector(text)}
            for i, text in enumerate(asked["input"])
        ]
        rows = rows[:-1] if self.forget_last else rows
        told = {"object": "list", "data": rows[::-1], "model": asked["model"], "usage": {}}
        self.send(request, 200, json.dumps(told).encode())

    def _vector(self, text: str) -> list[float]:
        words = text.casefold().split() or [""]
        seeds = [np.random.default_rng(zlib.crc32(w.encode())) for w in words]
        return [float(v) for v in np.sum([s.standard_normal(self.dimensions) for s in seeds], axis=0)]


SHIPPED = Path(str(resources.files("toolscript").joinpath("data/models"))) / "all-MiniLM-L6-v2"


def hub_layout(folder: Path) -> Path:
    """A folder with the shipped model, its files placed as hub repositories place them."""
    shutil.copytree(SHIPPED, folder)
    (folder / "onnx").mkdir()
    (folder / "model_quantized.onnx").rename(folder / "onnx" / "model_quantized.onnx")
    return folder


class Hub(HttpDouble):
    """A model hub with one repository, the files of a folder."""

    COMMIT = "0123456789abcdef0123456789abcdef01234567"

    def __init__(self, repository: str, folder: Path) -> None:
        super().__init__()
        self._repository = repository
        self._files = {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        path = request.path.partition("?")[0]
        known = f"/{self._repository}/resolve/{self.COMMIT}/"
        if path.startswith((f"/api/models/{self._repository}",)):
            told = {
                "id": self._repository,
                "sha": self.COMMIT,
                "siblings": [{"rfilename": name} for name in self._files],
            }
            if "/tree/" in path:
                listing = [
                    {"type": "file", "path": n, "size": p.stat().st_size, "oid": "0" * 40}
                    for n, p in self._files.items()
                ]
                self.send(request, 200, json.dumps(listing).encode())
            else:
                self.send(request, 200, json.dumps(told).encode())
        elif path.startswith(known) and path.removeprefix(known) in self._files:
            content = self._files[path.removeprefix(known)].read_bytes()
            headers = {
                "ETag": f'"{zlib.crc32(content):08x}"',
                "X-Repo-Commit": self.COMMIT,
                "Content-Length": str(len(content)),
            }
            self.send(request, 200, content, headers)
        elif path == "/":
            self.send(request, 200, b"{}")
        else:
            self.send(request, 404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
