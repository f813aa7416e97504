"""MCP servers for tests: real ones (`real`), scripted ones that misbehave (`scripted`), one on HTTP (`http_server`).

Every helper gives entries of a `mcpServers` object, so that a test writes its configuration from them:

    {"mcpServers": {**real_servers(folder), "bad": scripted_spec(crash=True), "far": {"type": "http", "url": web.http}}}
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from tests.servers.scripted import Behaviour
from toolscript.domain.servers import ServerSpec, Transport

HERE = Path(__file__).parent
KEY = "test-key"


def make_scripted_spec(*, env: Mapping[str, str] | None = None, **behaviour: Unpack[Behaviour]) -> dict[str, Any]:
    """The entry of a scripted server. It starts without site packages: some 50 ms."""
    script = [str(HERE / "scripted.py"), json.dumps(behaviour)]
    return {"command": sys.executable, "args": ["-I", "-S", *script], "env": dict(env or {})}


def make_scripted_server(
    server: str = "scripted",
    *,
    include: tuple[str, ...] | None = None,
    exclude: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    **behaviour: Unpack[Behaviour],
) -> ServerSpec:
    """The same as the configuration would read it."""
    entry = make_scripted_spec(env=env, **behaviour)
    return ServerSpec(
        server,
        Transport.STDIO,
        command=entry["command"],
        args=tuple(entry["args"]),
        env=entry["env"],
        include_tools=include,
        exclude_tools=exclude,
    )


@dataclass(frozen=True, slots=True)
class WebServer:
    """Where a server on HTTP is reached."""

    http: str
    sse: str
    port: int


@contextmanager
def serving_http(*, key: bool = False, port: int = 0) -> Iterator[WebServer]:
    """A server on both HTTP transports, in a process of its own. A port of an earlier one brings that one back."""
    command = [sys.executable, "-P", str(HERE / "http_server.py"), "--port", str(port)]
    with subprocess.Popen(
        [*command, *(["--key", KEY] if key else [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield WebServer(**json.loads(process.stdout.readline()))
        finally:
            process.kill()
