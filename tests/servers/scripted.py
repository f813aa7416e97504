"""A scripted MCP server, also for misbehaviour: newline-delimited JSON-RPC on its standard streams.

It is run as a script (`python -I -S scripted.py '{"noisy": true}'`) and uses the standard library alone, so that it
starts in some 50 ms and can send messages that no SDK would send. `tests.servers.make_scripted_spec` builds its
`mcpServers` entry.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypedDict

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UPSTREAM_ERROR = -32050
CRASHED = 3
DIED = 7
POLL_SECONDS = 0.02
MAX_LIFE_SECONDS = 600

# What every result that clients may keep has since 2026-07-28.
CACHEABLE: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


class Behaviour(TypedDict, total=False):
    """What the server offers, and how it behaves. Without a key it behaves well."""

    name: str  # its name in the handshake; `scripted` by default
    tools: list[str]  # names of the built-in tools to serve; by default all but those of RELAYED
    catalog: str  # serve the tools of this JSONL or JSONL.gz file (id, server, name, description, input_schema)
    limit: int  # maximum number of tools of the catalog
    listing: str  # serve the `tools` of this file, a recorded answer to tools/list
    watch: str  # serve the lists of this JSON file (tools, prompts, resources, resourceTemplates), and announce changes
    page_size: int  # number of items on a page of a list
    prompts: bool  # have prompts
    resources: bool  # have resources and resource templates
    completions: bool  # complete arguments
    subscriptions: str  # follow resources: announce an update of each with every change of this file
    sloppy: bool  # also serve invalid tools
    noisy: bool  # print other lines between messages, and more on stderr than a pipe can buffer
    log: list[str]  # lines to print on stderr before the first message is read
    messages: list[Any]  # have logging: send log messages with these parameters when asked to (since 2026 by each call)
    ignores: list[str]  # methods that are never answered
    hang: bool  # read requests and never answer
    crash: bool  # print a reason on stderr and exit at once
    crash_unless: str  # the same, until a file of this name exists
    crash_after_listing: bool  # the same, after the last page of tools
    slow_start: float  # seconds to wait before reading the first message
    start_with: str  # wait with reading the first message until a file of this name exists
    deaf: bool  # ignore SIGTERM and the end of the input
    modern: bool  # speak only 2026-07-28
    serial: bool  # answer one request at a time: nothing else during a call of `slow`
    restless: bool  # announce a change of tools after every listing
    refuses: list[str]  # methods that get an internal error
    signed: bool  # `echo` adds the server's name, and answers after up to 20 ms, so that answers overtake each other
    child: bool  # start a child process that outlives it (the tool `pid` returns both ids)


def _tool(name: str, description: str, required: tuple[str, ...] = (), /, **properties: object) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema}


BUILT_IN: dict[str, dict[str, Any]] = {
    tool["name"]: tool
    for tool in (
        _tool(
            "echo",
            "Returns its arguments, as text and structured.",
            ("text",),
            text={"type": "string", "description": "Anything"},
            times={"type": "integer", "minimum": 1},
        )
        | {"outputSchema": {"type": "object"}},
        _tool("fail", "Answers that it failed.", message={"type": "string"}),
        _tool("error", "Answers with a JSON-RPC error.", message={"type": "string"}, code={"type": "integer"}),
        _tool("slow", "Answers after some seconds.", ("seconds",), seconds={"type": "number"}),
        _tool("die", "Ends the process instead of answering."),
        _tool("pid", "Returns the ids of the process and of the one it started."),
        _tool("env", "Returns an environment variable.", ("name",), name={"type": "string"}),
        _tool("seen", "Returns how many messages of each method came so far."),
    )
}

# Served only when named: they show what passes through a gateway.
RELAYED: dict[str, dict[str, Any]] = {
    tool["name"]: tool
    for tool in (
        _tool("answer", "Answers with the given result.", ("result",), result={}),
        _tool("count", "Reports its progress at every step.", ("steps",), steps={"type": "integer"}),
        _tool("meta", "Returns the `_meta` that came with the call."),
        _tool("ask", "Asks its caller for input, and returns what it gets.", method={"type": "string"}),
    )
}

SLOPPY: list[Any] = [
    _tool("twice", "The first of two tools with one name."),
    _tool("twice", "The second of two tools with one name."),
    {"description": "A tool without a name.", "inputSchema": {"type": "object"}},
    {"name": "listed_schema", "description": "Its schema is a list.", "inputSchema": ["path"]},
    {"name": "described_by_number", "description": 7, "inputSchema": {"type": "object"}},
    {"name": "untyped_schema", "description": "Its schema has no type.", "inputSchema": {"properties": {"a": {}}}},
    {"name": "no_schema", "description": "It has no schema."},
    {"name": "null_everything", "description": None, "inputSchema": None, "annotations": None},
    "not even an object",
    {"name": "endless", "description": "endless " * 25_000, "inputSchema": {"type": "object"}},
]

PROMPTS = [
    {
        "name": "summarise",
        "description": "Summarise a text.",
        "arguments": [
            {"name": "text", "description": "What to summarise", "required": True},
            {"name": "words", "description": "How long it may be"},
        ],
    },
    {"name": "greet", "description": "Greet the reader."},
]
RESOURCES = [
    {"uri": "memo://welcome", "name": "welcome", "description": "A first memo.", "mimeType": "text/plain"},
    {"uri": "memo://rules", "name": "rules", "title": "Rules of the house", "mimeType": "text/markdown"},
]
TEMPLATES = [{"uriTemplate": "memo://{year}/{month}", "name": "memos", "description": "The memos of a month."}]


class RpcError(Exception):
    """Raised to answer with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def catalog_tools(file: Path) -> Iterator[dict[str, Any]]:
    """The tools of a catalog as one server would list them: a name that several servers use gets its server's."""
    content = file.read_bytes()
    lines = (gzip.decompress(content) if file.suffix == ".gz" else content).splitlines()
    rows = [json.loads(line) for line in lines]
    uses = Counter(row["name"] for row in rows)
    taken = {name for name, count in uses.items() if count == 1}
    for row in rows:
        name = row["name"]
        if uses[name] > 1:
            full = re.sub(r"[^A-Za-z0-9_-]+", "_", f"{row['server']}_{name}")
            candidates = (full if n == 1 else f"{full}_{n}" for n in range(1, len(rows) + 2))
            name = next(candidate for candidate in candidates if candidate not in taken)
            taken.add(name)
        yield {"name": name, "description": row["description"], "inputSchema": row["input_schema"]}


def _read_lists(content: bytes) -> dict[str, list[Any]]:
    lists = json.loads(content)
    return {key: lists.get(key, []) for key in LISTS.values()}


class Server:
    """The loop: a message in, an answer out, and whatever else the behaviour asks for."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._output = threading.Lock()
        self._timers: dict[Any, threading.Timer] = {}
        self._seen: Counter[str] = Counter()
        self._asking: dict[Any, Any] = {}
        """The calls that wait for an answer of the client, by the id of the question."""
        self._initialized = False
        self._child: int | None = None
        self._followed: set[str] = set()
        self._watched = Path(behaviour["watch"]).read_bytes() if "watch" in behaviour else b""
        self._lists = self._serve()

    def _serve(self) -> dict[str, list[Any]]:
        """The lists that it has. A method whose list is missing here is one that the server lacks."""
        behaviour = self._behaviour
        if "watch" in behaviour:
            return _read_lists(self._watched)
        if "catalog" in behaviour:
            tools: list[Any] = list(catalog_tools(Path(behaviour["catalog"])))[: behaviour.get("limit")]
        elif "listing" in behaviour:
            tools = json.loads(Path(behaviour["listing"]).read_bytes())["tools"]
        else:
            tools = [(BUILT_IN | RELAYED)[name] for name in behaviour.get("tools", BUILT_IN)]
        lists = {"tools": tools + (SLOPPY if behaviour.get("sloppy") else [])}
        if behaviour.get("prompts"):
            lists["prompts"] = PROMPTS
        if behaviour.get("resources"):
            lists |= {"resources": RESOURCES, "resourceTemplates": TEMPLATES}
        return lists

    def run(self) -> None:
        """Serves until the input ends. A deaf server goes on for ten minutes, in case its test is lost."""
        behaviour = self._behaviour
        if behaviour.get("deaf"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if behaviour.get("child"):
            self._child = os.posix_spawnp("sleep", ["sleep", str(MAX_LIFE_SECONDS)], os.environ)
        if "watch" in behaviour:
            threading.Thread(target=self._watch, args=(Path(behaviour["watch"]),), daemon=True).start()
        if "subscriptions" in behaviour:
            file = Path(behaviour["subscriptions"])
            threading.Thread(target=self._announce, args=(file, file.read_bytes()), daemon=True).start()
        sys.stderr.write("".join(f"{line}\n" for line in behaviour.get("log", ())))
        sys.stderr.flush()
        time.sleep(behaviour.get("slow_start", 0))
        while "start_with" in behaviour and not Path(behaviour["start_with"]).exists():
            time.sleep(POLL_SECONDS)
        for line in sys.stdin.buffer:
            if not behaviour.get("hang"):
                self._take(json.loads(line))
        if behaviour.get("deaf"):
            time.sleep(MAX_LIFE_SECONDS)

    def _take(self, message: Mapping[str, Any]) -> None:
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            if message.get("id") in self._asking:
                received = {key: message[key] for key in ("result", "error") if key in message}
                self._send(id=self._asking.pop(message["id"]), result=_make_structured(received))
            return
        self._seen[method] += 1
        if method == "notifications/initialized":
            self._initialized = True
        elif method == "notifications/cancelled" and (timer := self._timers.pop(params.get("requestId"), None)):
            timer.cancel()
        if "id" not in message:
            return
        try:
            answer = self._answer(message["id"], method, params)
        except RpcError as error:
            self._send(id=message["id"], error={"code": error.code, "message": str(error)})
            return
        if answer is not None:
            self._send(id=message["id"], result=answer)
        if method == "tools/list" and self._behaviour.get("restless"):
            self._send(method="notifications/tools/list_changed")
        if method == "tools/list" and self._behaviour.get("crash_after_listing") and "nextCursor" not in (answer or {}):
            crash("It crashed after the listing, as scripted.")

    def _answer(self, request: Any, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result, or None when it is sent later."""
        if method in self._behaviour.get("ignores", []):
            return None
        if method == "logging/setLevel" and "messages" in self._behaviour:
            self._send_messages()
            return {}
        if method == "tools/call" and "io.modelcontextprotocol/logLevel" in params.get("_meta", {}):
            self._send_messages()
        if method in self._behaviour.get("refuses", []):
            raise RpcError(INTERNAL_ERROR, f"{method} is broken")
        if method == ("server/discover" if self._behaviour.get("modern") else "initialize"):
            return self._introduce(params.get("protocolVersion"))
        if method == "ping":
            return {}
        if method in LISTS and LISTS[method] in self._lists:
            return self._page(LISTS[method], params.get("cursor"))
        if method == "tools/call":
            if params.get("name") in RELAYED:
                return self._relay(request, params)
            return self._call(request, params.get("name"), params.get("arguments") or {})
        return self._answer_native(method, params)

    def _answer_native(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answers the requests for prompts and resources."""
        if method == "prompts/get" and "prompts" in self._lists:
            text = f"{params.get('name')} {json.dumps(params.get('arguments') or {}, sort_keys=True)}"
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        if method == "resources/read" and "resources" in self._lists:
            uri = params.get("uri")
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"What {uri} holds"}]}
        if method in {"resources/subscribe", "resources/unsubscribe"} and "subscriptions" in self._behaviour:
            (self._followed.add if method == "resources/subscribe" else self._followed.discard)(params["uri"])
            return {}
        if method == "completion/complete" and self._behaviour.get("completions"):
            return {"completion": {"values": [json.dumps(params, sort_keys=True)], "total": 7, "hasMore": True}}
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _send_messages(self) -> None:
        for message in self._behaviour.get("messages", []):
            self._send(method="notifications/message", params=message)

    def _introduce(self, version: Any) -> dict[str, Any]:
        if self._behaviour.get("modern"):
            return CACHEABLE | {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        announces = "watch" in self._behaviour
        logging: dict[str, Any] = {"logging": {}} if "messages" in self._behaviour else {}
        capabilities = {key: {"listChanged": announces} for key in self._lists if key != "resourceTemplates"}
        return {
            "protocolVersion": version,
            "capabilities": capabilities | logging | ({"completions": {}} if "completions" in self._behaviour else {}),
            "serverInfo": {"name": self._behaviour.get("name", "scripted"), "version": "1.0.0"},
        }

    def _page(self, key: str, cursor: str | None) -> dict[str, Any]:
        items = self._lists[key]
        start, size = int(cursor or 0), self._behaviour.get("page_size") or len(items)
        page: dict[str, Any] = {key: items[start : start + size]} | (CACHEABLE if self._behaviour.get("modern") else {})
        return page | {"nextCursor": str(start + size)} if start + size < len(items) else page

    def _relay(self, request: Any, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Calls a tool of RELAYED; None when it is answered later."""
        name, arguments, meta = params["name"], params.get("arguments") or {}, params.get("_meta") or {}
        if name == "answer":
            return dict(arguments["result"])
        if name == "ask":
            return self._ask(request, arguments.get("method", "elicitation/create"), params)
        for step in range(1, arguments["steps"] + 1) if name == "count" and "progressToken" in meta else ():
            about = {"progressToken": meta["progressToken"], "progress": step, "total": arguments["steps"]}
            self._send(method="notifications/progress", params=about | {"message": f"step {step}"})
        return _text("counted") if name == "count" else _make_structured(meta)

    def _ask(self, request: Any, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        question: dict[str, Any] = {
            "message": "Your name?",
            "mode": "form",
            "requestedSchema": {"type": "object", "properties": {}},
        }
        if method == "sampling/createMessage":
            question = {"messages": [], "maxTokens": 7, "unknown": None}
        if not self._behaviour.get("modern"):
            self._asking[f"question {request}"] = request
            self._send(id=f"question {request}", method=method, params=question)
            return None
        if "inputResponses" not in params:
            needed = {"resultType": "input_required", "inputRequests": {"name": {"method": method, "params": question}}}
            return needed | {"requestState": f"state of {os.getpid()}"}
        capabilities = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        state = {"isMine": params.get("requestState") == f"state of {os.getpid()}", "capabilities": capabilities}
        return _make_structured({"responses": params["inputResponses"], **state}) | {"resultType": "complete"}

    def _call(self, request: Any, name: Any, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Built-in tools do what their description says; those of a catalog or a listing return their arguments."""
        listed = [tool for tool in self._lists["tools"] if isinstance(tool, dict) and tool.get("name") == name]
        if not listed:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        if listed[0] != BUILT_IN.get(name):
            return _text(json.dumps({"tool": name, "arguments": arguments}))
        if name == "slow" and self._behaviour.get("serial"):
            time.sleep(arguments["seconds"])
            return _text(f"It took {arguments['seconds']} s.")
        if name == "slow":
            answer = _text(f"It took {arguments['seconds']} s.")
            timer = threading.Timer(arguments["seconds"], self._send, kwargs={"id": request, "result": answer})
            timer.daemon = True
            self._timers[request] = timer
            timer.start()
            return None
        if name == "echo" and self._behaviour.get("signed"):
            signed = _make_structured({**arguments, "server": self._behaviour["name"]})
            threading.Timer(random.uniform(0, 0.02), self._send, kwargs={"id": request, "result": signed}).start()
            return None
        simple: dict[str, Callable[[], dict[str, Any]]] = {
            "echo": lambda: _make_structured(arguments),
            "fail": lambda: _text(arguments.get("message", "It went wrong.")) | {"isError": True},
            "pid": lambda: _make_structured({"pid": os.getpid(), "child": self._child}),
            "env": lambda: _make_structured({"value": os.environ.get(arguments["name"])}),
            "seen": lambda: _make_structured(self._seen),
        }
        if name in simple:
            return simple[name]()
        if name == "die":
            crash("It died in the middle of a call, as scripted.", DIED)
        raise RpcError(arguments.get("code", UPSTREAM_ERROR), arguments.get("message", "It refused."))

    def _watch(self, file: Path) -> None:
        """Announces changed lists when the file changes. A half-written file is read again later."""
        while True:
            time.sleep(POLL_SECONDS)
            try:
                content = file.read_bytes()
                if content == self._watched:
                    continue
                lists = _read_lists(content)
            except (OSError, ValueError):
                continue
            changed = [key for key in lists if lists[key] != self._lists[key]]
            self._watched, self._lists = content, lists
            for kind in dict.fromkeys("resources" if key == "resourceTemplates" else key for key in changed):
                if self._initialized:
                    self._send(method=f"notifications/{kind}/list_changed")

    def _announce(self, file: Path, seen: bytes) -> None:
        """Announces updates of the followed resources when the file differs from what was seen."""
        while True:
            time.sleep(POLL_SECONDS)
            if (content := file.read_bytes()) != seen:
                seen = content
                for uri in sorted(self._followed):
                    self._send(method="notifications/resources/updated", params={"uri": uri})

    def _send(self, **message: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self._output:
            if self._behaviour.get("noisy"):
                sys.stderr.write(f"{'warning ' * 8}\n" * 2_000)
                line = b"Listening...\n\n{half a message\n[1, 2]\n\xff\xfe\n" + line + b"done\n"
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _make_structured(value: Mapping[str, Any]) -> dict[str, Any]:
    return _text(json.dumps(value)) | {"structuredContent": dict(value)}


def crash(reason: str, status: int = CRASHED) -> NoReturn:
    """Ends the process at once, without clean-up and without flushing output."""
    os.write(2, f"{reason}\n".encode())
    os._exit(status)


def main() -> None:
    behaviour: Behaviour = json.loads(sys.argv[1])
    if behaviour.get("crash"):
        crash("It crashed at the start, as scripted.")
    if "crash_unless" in behaviour and not Path(behaviour["crash_unless"]).exists():
        crash(f"It needs {behaviour['crash_unless']}.")
    Server(behaviour).run()


if __name__ == "__main__":
    main()
