"""Checks the types of TypeScript programs by Deno's language server: it needs 25 ms where `deno check` needs 600."""

from __future__ import annotations

import asyncio
import json
import os
import re
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from heapq import nsmallest
from typing import Any

from toolscript.adapters.deno.process import DENO_DATA_BYTES, FOLDER, start_deno
from toolscript.adapters.sandbox.bounded_json import read_json
from toolscript.adapters.sandbox.program_hints import find_hint
from toolscript.adapters.workers.process import stop_process
from toolscript.domain.errors import Unavailable
from toolscript.domain.limits import current_limits
from toolscript.domain.programs import MAX_PROGRAM_PROBLEMS, Program, ProgramProblem

# What is there beside the language itself. It stands first: the compiler reads the files that comments name only before
# the first statement. What `import` names is refused by checker.json.
GLOBALS = """\
declare function call_host(name: string, parameters: object): Promise<any>;
declare const console: Record<"log" | "info" | "debug" | "warn" | "error", (...values: unknown[]) => void>;
declare function setTimeout(callback: (...values: any[]) => void, milliseconds?: number, ...values: any[]): number;
declare function setInterval(callback: (...values: any[]) => void, milliseconds?: number, ...values: any[]): number;
declare function clearTimeout(id?: number): void;
declare function clearInterval(id?: number): void;
declare function queueMicrotask(callback: () => void): void;
declare function structuredClone<T>(value: T): T;
declare function atob(text: string): string;
declare function btoa(text: string): string;
declare class TextEncoder { encode(text?: string): Uint8Array; }
declare class TextDecoder { constructor(label?: string); decode(bytes?: ArrayBuffer | ArrayBufferView): string; }
declare class URLSearchParams {
  constructor(init?: string | string[][] | Record<string, string>);
  append(name: string, value: string): void;
  delete(name: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string): boolean;
  set(name: string, value: string): void;
  toString(): string;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}
declare class URL {
  constructor(url: string, base?: string | URL);
  href: string; protocol: string; host: string; hostname: string; port: string; pathname: string; search: string;
  hash: string; username: string; password: string;
  readonly origin: string; readonly searchParams: URLSearchParams;
  toString(): string;
}
"""
OPENING = "\nexport default async function () {\n"
ROOT = "file:///toolscript"
START_SECONDS = 30.0
MEMORY_BYTES = 2**29
# It remembers a little of every program.
MAX_CHECKS = 1000
ERROR = 1
MAX_MESSAGE_LENGTH = 1000
_UNKNOWN_NAME = re.compile(r"Cannot find name '(\w+)'")
# By the numbers of TypeScript's messages, which are about modules.
_EXPLAINED = {
    "1232": "nothing can be imported: the program is the body of a function, and tools are in `tools`",
    **dict.fromkeys(
        ["1184", "1233", "1258"],
        "nothing can be exported: the program is the body of a function, and `return` gives its value",
    ),
}


class TypeScriptChecker:
    """Checks one program at a time. The server starts with the first check, and again after it was killed."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._server: LanguageServer | None = None

    async def prepare(self) -> None:
        """Starts the server, and its compiler with a first check. Raises Unavailable."""
        try:
            await self.check(Program(""), START_SECONDS)
        except TimeoutError:
            raise Unavailable("the check of TypeScript cannot be started") from None

    async def check(self, program: Program, seconds: float) -> list[ProgramProblem]:
        """What is wrong with a program, by line. Raises TimeoutError when that alone takes longer, and Unavailable."""
        opening = GLOBALS + program.types + OPENING
        async with self._wait_for_turn():
            server = await self._take_server()
            try:
                async with asyncio.timeout(seconds):
                    found = await server.check(f"{opening}{program.source}\n}}\n")
                self._server = server
            except EOFError:
                return [ProgramProblem(1, 1, "the program is too complex to be checked")]
            finally:
                if self._server is None:
                    await server.stop()
        return _list_problems(found, first=opening.count("\n"), last=program.source.count("\n"))

    @asynccontextmanager
    async def _wait_for_turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(current_limits().type_check_turn):
                await self._lock.acquire()
        except TimeoutError:
            raise Unavailable("too many programs are being checked: try again later") from None
        try:
            yield
        finally:
            self._lock.release()

    async def _take_server(self) -> LanguageServer:
        """The server that runs, or a new one."""
        server, self._server = self._server, None
        if server and server.checks < MAX_CHECKS:
            return server
        if server:
            await server.stop()
        return await LanguageServer.start()

    async def close(self) -> None:
        """Ends the server."""
        async with self._lock:
            server, self._server = self._server, None
            if server:
                await server.stop()


def _list_problems(found: list[dict[str, Any]], *, first: int, last: int) -> list[ProgramProblem]:
    problems = {
        (each["range"]["start"]["line"] - first, each["range"]["start"]["character"], each["message"], each.get("code"))
        for each in found
        if each["severity"] == ERROR and each["range"]["start"]["line"] >= first
    }
    return [
        ProgramProblem(min(line, last) + 1, column + 1, _explain(str(code), message)[:MAX_MESSAGE_LENGTH])
        for line, column, message, code in nsmallest(MAX_PROGRAM_PROBLEMS, problems, key=lambda each: each[:3])
    ]


def _explain(code: str, message: str) -> str:
    """The message without advice that is for whole projects, and what to do."""
    if code in _EXPLAINED:
        return _EXPLAINED[code]
    message = message.partition(" Do you need to change your target library?")[0]
    found = _UNKNOWN_NAME.match(message)
    hint = find_hint(found[1]) if found else ""
    return f"{message.rstrip('.')}: {hint}" if hint else message


class LanguageServer:
    """Deno's language server, with one document at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._last_id = 0
        self.checks = 0

    @classmethod
    async def start(cls) -> LanguageServer:
        """Starts the server. Raises Unavailable."""
        flags = f"--max-old-space-size={MEMORY_BYTES // 2**20}"
        server = cls(await start_deno("lsp", "--quiet", v8_flags=flags, data_bytes=DENO_DATA_BYTES + 2 * MEMORY_BYTES))
        options = {"enable": True, "lint": False, "cacheOnSave": False, "config": (FOLDER / "checker.json").as_uri()}
        try:
            async with asyncio.timeout(START_SECONDS):
                await server._request(
                    "initialize",
                    {
                        "processId": os.getpid(),
                        "rootUri": ROOT,
                        "capabilities": {"textDocument": {"diagnostic": {}}},
                        "initializationOptions": options,
                    },
                )
                await server._send({"method": "initialized", "params": {}})
        except (TimeoutError, EOFError, ValueError):
            await server.stop()
            raise Unavailable("the check of TypeScript cannot be started") from None
        except BaseException:
            await server.stop()
            raise
        return server

    async def check(self, text: str) -> list[dict[str, Any]]:
        """The problems of a text. Raises EOFError when the server has ended."""
        self.checks += 1
        uri = f"{ROOT}/program{self.checks}.ts"
        document = {"uri": uri, "languageId": "typescript", "version": 1, "text": text}
        await self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        answer = await self._request("textDocument/diagnostic", {"textDocument": {"uri": uri}})
        await self._send({"method": "textDocument/didClose", "params": {"textDocument": {"uri": uri}}})
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def stop(self) -> None:
        """Kills the server."""
        await stop_process(self._process)

    async def _request(self, method: str, params: Mapping[str, Any]) -> Any:
        self._last_id += 1
        await self._send({"id": self._last_id, "method": method, "params": params})
        while True:
            message = await self._receive()
            if "method" not in message and message.get("id") == self._last_id:
                if "result" not in message:
                    raise EOFError(str(message.get("error")))
                return message["result"]
            if "method" in message and "id" in message:
                await self._send({"id": message["id"], "result": None})

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin  # noqa: S101
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
        try:
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None

    async def _receive(self) -> dict[str, Any]:
        assert self._process.stdout  # noqa: S101
        try:
            header = await self._process.stdout.readuntil(b"\r\n\r\n")
            size = int(header.split(b"Content-Length:")[1].split()[0])
            content = await self._process.stdout.readexactly(size)
        except asyncio.IncompleteReadError:
            raise EOFError from None
        message: dict[str, Any] = await read_json(content.decode())
        return message
