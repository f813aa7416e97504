"""The model once more, in a process of its own, for queries that come together.

In ours the threads that embed wait for Python's lock whenever a search holds it, and a search waits for theirs. There
nobody else wants the lock. See docs/decisions/0017.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress

import numpy as np

from toolscript.adapters.books.child_environment import bare_environment
from toolscript.adapters.onnx.model_folders import ModelFolder
from toolscript.domain.errors import Unavailable
from toolscript.domain.search import Vector

# A number in front of a text and of its vector says which belong together.
NUMBER = 8
# What arrives in one piece wherever there are such sockets; hardly a query is longer.
LONGEST = 32 * 1024
READY = b"ready"
FAREWELL_SECONDS = 2.0
# A text takes milliseconds: a process that lets one wait for so long has stopped.
PATIENCE_SECONDS = 5.0
_START = "from toolscript.adapters.onnx.worker import main; main()"

log = logging.getLogger(__name__)


class ModelApart:
    """A child process that turns texts into vectors, one by one, on as many threads as it was told."""

    def __init__(self, child: Process, ours: socket.socket, patience: float) -> None:
        self._child = child
        self._socket: socket.socket | None = ours
        self._patience = patience
        self._waiting: dict[int, tuple[asyncio.Future[Vector], float]] = {}
        self._asked = 0
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours.fileno(), self._take)
        self.is_ready = False
        """Whether texts can be given to it: not before it has loaded the model, nor after it has ended."""

    @classmethod
    async def started(
        cls, folder: ModelFolder, workers: int, *, patience: float = PATIENCE_SECONDS
    ) -> ModelApart | None:
        """A child that is still loading the model; None where it cannot be had."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except (AttributeError, OSError):  # Windows has no such sockets, macOS cannot do it
            return None
        told = [str(folder.onnx), str(folder.tokenizer), folder.card.pooling, folder.card.window, workers]
        with theirs:
            try:
                child = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-S", "-P", "-c", _START, str(theirs.fileno()), json.dumps(told)),
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=bare_environment(),
                )
            except OSError as error:
                ours.close()
                log.warning("model_not_apart", extra={"reason": str(error)})
                return None
        ours.setblocking(False)
        return cls(child, ours, patience)

    async def embed(self, text: str) -> Vector:
        """The text's vector. Raises Unavailable where there will be none; others may know why."""
        now = self._loop.time()
        if self._waiting and now - next(iter(self._waiting.values()))[1] > self._patience:
            self._give_up("does not answer any more")
        self._asked += 1
        answer: asyncio.Future[Vector] = self._loop.create_future()
        self._waiting[self._asked] = answer, now
        try:
            if self._socket is None:
                raise BrokenPipeError
            self._socket.send(self._asked.to_bytes(NUMBER, "little") + text.encode("utf-8", "replace"))
        except OSError as error:
            del self._waiting[self._asked]
            raise Unavailable(f"the model's process takes no more: {error}") from error
        return await answer

    async def close(self) -> None:
        """Ends the child: without a word if it listens, otherwise by force."""
        self._leave()
        try:
            await asyncio.wait_for(self._child.wait(), FAREWELL_SECONDS)
        except TimeoutError:
            self._child.kill()
            await self._child.wait()

    def _take(self) -> None:
        """Hands on whatever has come."""
        while self._socket is not None:
            try:
                come = self._socket.recv(LONGEST)
            except BlockingIOError:
                return
            except OSError:
                come = b""
            if come == READY:
                self.is_ready = True
            elif come:
                self._hand_on(int.from_bytes(come[:NUMBER], "little"), come[NUMBER:])
            else:
                self._give_up("has ended")

    def _hand_on(self, number: int, vector: bytes) -> None:
        answer, _ = self._waiting.pop(number)
        if answer.done():
            return  # whoever asked has gone
        if vector:
            answer.set_result(np.frombuffer(vector, np.float32))
        else:
            answer.set_exception(Unavailable("the model's process could not embed the text"))

    def _give_up(self, reason: str) -> None:
        log.warning("model_apart_given_up", extra={"pid": self._child.pid, "reason": f"it {reason}"})
        with suppress(ProcessLookupError):
            self._child.kill()
        self._leave()

    def _leave(self) -> None:
        self.is_ready = False
        if self._socket is None:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        for number in list(self._waiting):
            self._hand_on(number, b"")
