"""Lines on standard input that are no messages: each gets an error, and the server goes on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.servers.preloaded import toolscript_command

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
SURROGATE = r'{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "search_tools", "arguments": %s}}'
ARGUMENTS = r'{"query": "\ud800"}'


@pytest.mark.req("G-08", "X-03")
def test_a_line_that_is_no_message_gets_an_error_and_the_next_one_its_response(tmp_path: Path) -> None:
    configuration = tmp_path / "servers.json"
    configuration.write_text('{"mcpServers": {}}')
    command = [
        *toolscript_command(),
        "mcp",
        "--linger",
        "0",
        "--config",
        str(configuration),
        "--data-dir",
        str(tmp_path / "data"),
    ]
    environment = os.environ | {"TOOLSCRIPT_SEARCH_MODEL": "hashed-64", "HOME": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:

        def exchange(line: str) -> dict[str, Any]:
            assert process.stdin
            assert process.stdout
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
            response: dict[str, Any] = json.loads(process.stdout.readline())
            return response

        assert exchange(json.dumps(INITIALIZE))["id"] == 1
        for line, code, number in [
            (SURROGATE % ("7", ARGUMENTS), -32700, 7),
            (SURROGATE % ('"eight"', ARGUMENTS), -32700, "eight"),
            (SURROGATE % (r'"\udfff"', ARGUMENTS), -32700, None),
            ('{"jsonrpc": "2.0", "id": 9,', -32700, None),
            ("[" * 100_000, -32700, None),
            ("[]", -32600, None),
            ('{"id": 10}', -32600, None),
        ]:
            response = exchange(line)
            assert (response["error"]["code"], response["id"]) == (code, number), line[:80]
            assert response["error"]["message"].startswith("the message is not valid JSON")
        assert exchange('\n{"jsonrpc": "2.0", "id": 11, "method": "ping"}') == {
            "jsonrpc": "2.0",
            "id": 11,
            "result": {},
        }
        process.communicate(timeout=30)
    assert process.returncode == 0
