"""Services of models that answer without end: what is read of them is bounded in bytes and in time."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tests.fixtures.http_services import HttpDouble
from toolscript.adapters.models.http_reranker import HttpReranker
from toolscript.adapters.openai_api.chat import OpenAiChat
from toolscript.adapters.openai_api.embedder import OpenAiEmbedder
from toolscript.adapters.outgoing.bounds import MAX_CHAT_BYTES, MAX_EMBEDDINGS_BYTES, MAX_RERANK_BYTES
from toolscript.domain.errors import Unavailable, UpstreamFailed
from toolscript.domain.prompts import Prompt

pytestmark = pytest.mark.req("X-11")

# What a system keeps of a connection that nobody reads.
BUFFERED_BYTES = 16 * 2**20
ENDLESS_BYTES = 256 * 2**20
PIECE = b" " * 2**16


class HostileService(HttpDouble):
    """Answers every request with a status and spaces without end, all at once or one by one."""

    status = 200
    is_slow = False
    whole_answer = b""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.is_over = threading.Event()

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        if self.whole_answer:
            self.send(request, 200, self.whole_answer)
            return
        if self.status == 0:
            packed = gzip.compress(b" " * 2**26)
            self.send(request, 200, packed, {"Content-Encoding": "gzip", "Content-Length": str(len(packed))})
            return
        request.send_response(self.status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Connection", "close")
        request.end_headers()
        while self.sent < ENDLESS_BYTES and not (self.is_slow and self.is_over.wait(0.01)):
            request.wfile.write(b" " if self.is_slow else PIECE)
            self.sent += 1 if self.is_slow else len(PIECE)


@pytest.fixture
def service() -> Iterator[HostileService]:
    with HostileService() as started:
        try:
            yield started
        finally:
            started.is_over.set()


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 400])
async def test_an_embeddings_api_without_end_is_read_up_to_its_bound(service: HostileService, status: int) -> None:
    service.status = status
    with pytest.raises(Unavailable, match=r"larger than (32|1) MiB"):
        await OpenAiEmbedder.at(f"{service.root}/v1", None, "tiny", timeout_seconds=60.0)
    assert service.sent < MAX_EMBEDDINGS_BYTES + BUFFERED_BYTES


@pytest.mark.slow
async def test_an_embeddings_api_that_answers_byte_by_byte_ends_at_its_timeout(service: HostileService) -> None:
    service.is_slow = True
    with pytest.raises(Unavailable, match="does not answer"):
        await OpenAiEmbedder.at(f"{service.root}/v1", None, "tiny", timeout_seconds=0.1)
    assert len(service.requests) == 3


@pytest.mark.parametrize("status", [200, 400])
async def test_a_language_model_without_end_is_read_up_to_its_bound(service: HostileService, status: int) -> None:
    service.status = status
    model = OpenAiChat(f"{service.root}/v1", None, "tiny", timeout_seconds=60.0)
    with pytest.raises(UpstreamFailed, match=f"more than the maximum of {MAX_CHAT_BYTES} bytes"):
        await model.answer(Prompt(instructions="", text="", answer={"type": "object"}))
    await model.close()
    assert service.sent < BUFFERED_BYTES


async def test_a_packed_answer_of_a_reranker_is_not_unpacked(service: HostileService) -> None:
    service.status = 0
    reranker = HttpReranker(service.root, None, None)
    with pytest.raises(UpstreamFailed, match="sent an unusable response"):
        await reranker.scores("moon", ["sun"])
    await reranker.close()


async def test_an_answer_of_a_reranker_that_needs_much_memory_is_not_parsed(service: HostileService) -> None:
    service.whole_answer = b"[%s[]]" % (b"[]," * (MAX_RERANK_BYTES // 4))
    reranker = HttpReranker(service.root, None, None)
    with pytest.raises(UpstreamFailed, match=f"more than the maximum of {MAX_RERANK_BYTES} bytes"):
        await reranker.scores("moon", ["sun"])
    await reranker.close()
