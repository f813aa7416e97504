"""A gateway that is about to end takes no more pipes: they look for the next one, and lose no request."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from toolscript.domain.errors import Unavailable
from toolscript.surfaces.mcp.pipe_server import Answers, Hello, PipeServer

pytestmark = pytest.mark.req("A-06")
HELLO = json.dumps({"profile": "", "tenant": "default", "config": "", "digest": ""}).encode() + b"\n"


async def refuse(_: Hello) -> Answers:
    raise Unavailable("this pipe was served")


async def test_a_pipe_that_comes_while_the_gateway_ends_gets_no_greeting(tmp_path: Path) -> None:
    path = tmp_path / "gateway.socket"
    server = PipeServer(path, tmp_path, refuse, None)
    await server.open()
    with socket.socket(socket.AF_UNIX) as served, socket.socket(socket.AF_UNIX) as late:
        served.connect(str(path))
        served.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(served, HELLO)
        assert "this pipe was served" in (await loop.sock_recv(served, 4096)).decode()
        late.connect(str(path))  # the kernel has accepted it, the server has not
        late.setblocking(False)
        server.refuse_new()
        assert not path.exists()
        received = b""
        with suppress(ConnectionResetError, BrokenPipeError):  # instead of an end, where something was sent
            await loop.sock_sendall(late, HELLO)
            received = await loop.sock_recv(late, 4096)
        assert received == b""
    await server.close()


async def test_a_gateway_that_does_not_listen_leaves_the_socket_of_another_one(tmp_path: Path) -> None:
    path = tmp_path / "gateway.socket"
    server, other = PipeServer(path, tmp_path, refuse, None), PipeServer(path, tmp_path, refuse, None)
    await server.open()
    other.refuse_new()
    assert path.exists()
    await server.close()
