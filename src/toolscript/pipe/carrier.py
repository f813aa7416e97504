"""Carries messages: from standard input to the gateway, and from the gateway to standard output."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence

from toolscript.pipe.conversation import Conversation
from toolscript.pipe.early_answers import EarlyAnswers
from toolscript.pipe.place import (
    HAS_PIPES,
    GatewayStart,
    Options,
    fits_socket,
    locate_socket,
    lock_folder,
    parse_arguments,
)

INPUT, OUTPUT = 0, 1
MAX_LINE_BYTES = 64 * 2**20
# Longer lines of a gateway are passed on in pieces.
WHOLE_LINE_BYTES = 2**16
# What one side has not taken yet, before nothing more is read from the other side.
MAX_WAITING_BYTES = 2**20
# As much can be written to a pipe that is writable without waiting.
WRITE_BYTES, READ_BYTES = 4096, 2**16
START_TIMEOUT_SECONDS = 60.0
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS, ENDED_PAUSE_SECONDS = 0.02, 0.2, 1.0
# A gateway that ends without a message may have been ended by somebody: another one is tried.
MAX_STARTS = 2
TOO_LONG = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message is longer than 64 MiB"}}\n'


class Carrier:
    """One pipe: a client, and the gateway as long as there is one."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._conversation = Conversation(EarlyAnswers(options.answers).find)
        self._socket_path = locate_socket(options.data, options.name)
        self._socket: socket.socket | None = None
        self._from_client, self._from_gateway = bytearray(), bytearray()
        self._searched = 0
        """How much of the client's unfinished line has no line end."""
        self._start: GatewayStart | None = None
        self._is_skipping = self._is_passing = False
        self._is_input_open = True
        self._refusal: str | None = None
        """Why the gateway does not serve this pipe."""
        self._begin_to_start()

    def run(self) -> int:
        """Carries messages until the client has closed its side and got its answers; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _end)
        conversation = self._conversation
        while (
            self._is_input_open or conversation.has_open_requests or conversation.to_client or conversation.to_gateway
        ):
            if self._socket is None:
                self._look_for_gateway()
            try:
                self._wait_and_carry()
            except BrokenPipeError:  # the client has ended
                return 0
            if self._refusal:
                sys.stderr.write(f"error: {self._refusal}\n")
                return 2
        return 0

    def _wait_and_carry(self) -> None:
        """Waits until something can be read or written, and does it."""
        conversation, connected = self._conversation, self._socket
        readable: list[int | socket.socket] = []
        if self._is_input_open and conversation.waiting_bytes < MAX_LINE_BYTES:
            readable.append(INPUT)
        if connected and len(conversation.to_client) < MAX_WAITING_BYTES:
            readable.append(connected)
        writable: list[int | socket.socket] = [OUTPUT] if conversation.to_client else []
        if connected and conversation.to_gateway:
            writable.append(connected)
        pause = None if connected and self._is_input_open else self._pause
        readable, writable, _ = select.select(readable, writable, [], pause)
        if OUTPUT in writable:
            del conversation.to_client[: os.write(OUTPUT, conversation.to_client[:WRITE_BYTES])]
        elif not self._is_input_open and _is_closed(OUTPUT):
            raise BrokenPipeError
        if connected in readable:
            self._read_from_gateway()
        if connected in writable and self._socket:
            self._write_to_gateway()
        if INPUT in readable:
            self._read_input()

    def _read_input(self) -> None:
        piece = os.read(INPUT, READ_BYTES)
        self._is_input_open = bool(piece)
        self._from_client += piece or b"\n"  # the last line may have no line end
        while (end := self._from_client.find(b"\n", self._searched)) >= 0:
            line = bytes(self._from_client[: end + 1])
            del self._from_client[: end + 1]
            self._searched = 0
            if self._is_skipping:
                self._is_skipping = False
            elif line.strip():
                self._conversation.receive_from_client(line)
        self._searched = len(self._from_client)
        if self._searched > MAX_LINE_BYTES:
            self._conversation.to_client += b"" if self._is_skipping else TOO_LONG
            self._from_client.clear()
            self._searched, self._is_skipping = 0, True

    def _write_to_gateway(self) -> None:
        waiting = self._conversation.to_gateway
        try:
            del waiting[: self._socket.send(waiting[:READ_BYTES])]  # type: ignore[union-attr]
        except BlockingIOError:
            return
        except OSError:
            self._lose_gateway()

    def _read_from_gateway(self) -> None:
        try:
            piece = self._socket.recv(READ_BYTES) if self._socket else b""
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._lose_gateway()
            return
        while piece:
            end = piece.find(b"\n") + 1
            part, piece = (piece[:end], piece[end:]) if end else (piece, b"")
            if self._is_passing:
                self._conversation.to_client += part
                if end:
                    self._is_passing = False
                    self._conversation.end_passing()
                continue
            self._from_gateway += part
            if end:
                line = bytes(self._from_gateway)
                self._from_gateway.clear()
                if self._conversation.is_connected:
                    self._conversation.receive_from_gateway(line)
                else:
                    self._receive_greeting(line)
            elif len(self._from_gateway) > WHOLE_LINE_BYTES and self._conversation.begin_to_pass(
                bytes(self._from_gateway[:1024])
            ):
                self._is_passing = True
                self._conversation.to_client += self._from_gateway
                self._from_gateway.clear()

    def _lose_gateway(self) -> None:
        if self._socket:
            self._socket.close()
        self._socket, self._is_passing = None, False
        self._from_gateway.clear()
        if self._conversation.is_connected:
            self._conversation.disconnect()
            self._is_starting, self._pause = False, MIN_PAUSE_SECONDS

    def _receive_greeting(self, line: bytes) -> None:
        try:
            greeting = json.loads(line)
            self._refusal = greeting.get("refused")
        except (ValueError, AttributeError):
            self._refusal = f"{self._socket_path} is not the socket of a gateway"
        if not self._refusal:
            self._conversation.connect()

    def _look_for_gateway(self) -> None:
        """Connects to a gateway if one serves, and starts one if that is needed."""
        if self._conversation.needs_gateway and not self._is_starting:
            self._begin_to_start()
        self._socket = self._connect()
        if self._socket is None and self._is_starting:
            self._start_or_fail()
        self._pause = min(self._pause * 1.5, MAX_PAUSE_SECONDS if self._is_starting else ENDED_PAUSE_SECONDS)

    def _connect(self) -> socket.socket | None:
        """A connection before the greeting of the gateway."""
        connecting = socket.socket(socket.AF_UNIX)
        connecting.setblocking(False)
        try:
            if os.stat(self._socket_path).st_uid == os.getuid():
                is_short = fits_socket(self._socket_path)
                connecting.connect(self._socket_path if is_short else os.readlink(self._socket_path))
                connecting.send(json.dumps(self._options.hello).encode() + b"\n")
                return connecting
        except OSError:
            pass
        connecting.close()
        return None

    def _begin_to_start(self) -> None:
        self._is_starting, self._starts, self._start = True, 0, None
        self._pause = MIN_PAUSE_SECONDS
        self._deadline = time.monotonic() + START_TIMEOUT_SECONDS

    def _start_or_fail(self) -> None:
        """Starts a gateway unless another process does; fails when the gateway that it started has ended."""
        data, name = self._options.data, self._options.name
        try:
            lock = lock_folder(data, name)
            if lock is None and time.monotonic() < self._deadline:
                return
            reason = self._start.read_reason() if self._start and lock else ""
            if lock and self._starts < MAX_STARTS and not reason:
                self._start = GatewayStart(data, name, lock)
                self._starts += 1
                return
            if lock:
                os.close(lock)
        except OSError as error:
            reason = f"cannot use the data folder {data}: {error.strerror}"
        reason = reason or f"the gateway does not start: see {data}/{name}.log"
        sys.stderr.write(f"error: {reason}\n")
        sys.stderr.flush()
        self._is_starting = False
        self._conversation.fail(reason)


def _is_closed(output: int) -> bool:
    """Whether nobody reads the output any more."""
    poll = select.poll()
    poll.register(output, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def run(arguments: Sequence[str]) -> int | None:
    """Runs a pipe with the arguments after `toolscript mcp`; returns its exit code. None when they are not plain
    options with values, or this system has no pipes: the command line then explains it."""
    given = parse_arguments(arguments) if HAS_PIPES else None
    if given is None:
        return None
    return Carrier(Options({**os.environ, **given})).run()


def _end(*_: object) -> None:
    os._exit(0)
