"""`toolscript suggest`: names the tools that fit a prompt, for hooks that clients run before each turn of the model.

It asks a gateway that runs over its socket, and prints nothing where none runs, none answers in time, or no tool is
sure enough: a hook must neither delay nor disturb a turn. Only names are printed: descriptions are texts of servers,
and what a hook prints is read as if the user had written it. Imports the standard library alone, and little of it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from toolscript.pipe.place import HAS_PIPES, Options, fits_socket, locate_socket, parse_arguments

# Below, suggestions for requests that no tool serves become frequent: docs/benchmarks.md, Suggestions.
MIN_CONFIDENCE = 0.9
MAX_TOOLS = 3
# 150 tokens, at four characters each.
MAX_CHARACTERS = 600
# The beginning of a prompt says what it is about. What follows is often a file or a log.
MAX_PROMPT_CHARACTERS = 500
MAX_PROMPT_BYTES = 2**20
TIMEOUT_SECONDS = 2.0
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "toolscript-suggest", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_HIT = re.compile(r"([^\s,`]+)  ([01]\.[0-9][0-9])(?:  |$)")
# What follows these lines of an answer is not sure enough.
_UNSURE = ("Less sure:", "No ")


def run(arguments: Sequence[str]) -> int | None:
    """Reads a prompt from standard input and prints the suggestion. Returns the exit code, which is 0 whatever happens;
    None when the arguments are not plain options with values: the command line then explains them."""
    given = parse_arguments(arguments)
    if given is None:
        return None
    prompt = read_prompt(sys.stdin.buffer.read(MAX_PROMPT_BYTES))
    text = build_suggestion(ask_gateway(Options({**os.environ, **given}), prompt)) if prompt else ""
    if text:
        sys.stdout.write(f"{text}\n")
    return 0


def read_prompt(content: bytes) -> str:
    """The beginning of a prompt: the text itself, or `prompt` of the JSON that Claude Code gives to its hooks."""
    text = content.decode(errors="replace").strip()
    if text.startswith("{"):
        try:
            prompt: Any = json.loads(text)["prompt"]
        except (ValueError, KeyError, TypeError):
            prompt = text
        text = prompt.strip() if isinstance(prompt, str) else ""
    return text[:MAX_PROMPT_CHARACTERS]


def ask_gateway(options: Options, prompt: str) -> str:
    """The answer of `search_tools`; empty if there is none."""
    if not HAS_PIPES:
        return ""
    path = locate_socket(options.data, options.name)
    call = {"name": "search_tools", "arguments": {"query": prompt, "limit": MAX_TOOLS}, "_meta": META}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    try:
        if os.stat(path).st_uid != os.getuid():
            return ""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(path if fits_socket(path) else os.readlink(path))
            lines = (json.dumps(each).encode() + b"\n" for each in (options.hello, request))
            connection.sendall(b"".join(lines))
            return _read_answer(connection)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return ""


def _read_answer(connection: socket.socket) -> str:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with connection.makefile("rb") as lines:
        for line in lines:
            message: Mapping[str, Any] = json.loads(line)
            if message.get("id") == 1:
                result = message["result"]
                return "" if result.get("isError") else str(result["content"][0]["text"])
            if "refused" in message or time.monotonic() > deadline:
                break
    return ""


def build_suggestion(answer: str) -> str:
    """The sentence for the model; empty if no tool is sure enough."""
    names: list[str] = []
    lines = answer.splitlines()
    for number, line in enumerate(lines):
        if line.startswith(_UNSURE):
            break
        hit = _HIT.match(line)
        is_refused = "  quarantined" in "".join(lines[number + 1 : number + 2])
        if hit and float(hit[2]) >= MIN_CONFIDENCE and not is_refused:
            names.append(hit[1])
    text = ""
    for count in range(1, len(names) + 1):
        longer = (
            f"Tools that fit: {', '.join(names[:count])}. search_tools of Toolscript shows their arguments, and "
            "call_tool calls them."
        )
        text = longer if len(longer) <= MAX_CHARACTERS else text
    return text
