"""Scores passages with a rerank service.

Most services take `{"model", "query", "documents", "top_n"}` and answer `{"results": [{"index", "relevance_score"}]}`
(Cohere, Jina, vLLM, Infinity, llama.cpp). Text Embeddings Inference takes `{"query", "texts"}` and answers
`[{"index", "score"}]`. The first form is sent; a service that refuses it and names `texts` gets the second form from
then on.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from toolscript.adapters.outgoing.bounds import MAX_RERANK_BYTES, AnswerSize
from toolscript.adapters.outgoing.remote_services import hide_credentials, read_retry_after, require_http_url
from toolscript.domain.errors import Invalid, Unavailable, UpstreamFailed

MAX_CONCURRENT_CALLS = 4
MAX_DOCUMENTS, MAX_TEXTS = 500, 32
MAX_WAIT_SECONDS, DEFAULT_WAIT_SECONDS = 2.0, 0.25
MAX_REASON_LENGTH = 300
BUSY, REFUSED, DENIED, GOOD = {429, 503}, {400, 422}, {401, 403}, range(200, 300)
SCORES = ("relevance_score", "score")


class HttpReranker:
    """A rerank service behind a URL, with or without its `/rerank`."""

    def __init__(self, url: str, key: str | None, model: str | None, *, timeout_seconds: float = 10.0) -> None:
        """Connects on first use. Raises Invalid, naming the setting."""
        self._url = _endpoint(url)
        self._where = hide_credentials(self._url)
        self._key = key
        self._model = model
        self.model = model or self._where
        self._timeout = timeout_seconds
        self._takes_texts = False
        self._limit = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._client = httpx.AsyncClient(
            # Uncompressed: a small compressed response could expand beyond the limit.
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **_authorization(key)},
            timeout=timeout_seconds,
            follow_redirects=False,
        )

    async def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        found: list[float] = []
        if not self._takes_texts and passages:
            # The first batch alone: it shows in which form to send the others.
            first = await self._score_batch(query, passages[:MAX_DOCUMENTS])
            found, passages = first or [], passages[len(first or ()) :]
        size = MAX_TEXTS if self._takes_texts else MAX_DOCUMENTS
        batches = [passages[start : start + size] for start in range(0, len(passages), size)]
        for scores in await asyncio.gather(*(self._score_batch(query, batch) for batch in batches)):
            if scores is None:
                raise self._fail("refuses a form that it accepted before")
            found += scores
        return found

    async def close(self) -> None:
        await self._client.aclose()

    async def _score_batch(self, query: str, passages: Sequence[str]) -> list[float] | None:
        """The scores of some passages; None when the service needs the other form."""
        async with self._limit:
            try:
                # The library's timeout is per read: a service that sends single bytes would never reach it.
                async with asyncio.timeout(self._timeout):
                    answer = await self._request(query, passages)
            except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
                raise Unavailable(
                    f"the rerank service at {self._where} does not answer ({type(error).__name__}): check "
                    "TOOLSCRIPT_RERANKER",
                    details={"field": "TOOLSCRIPT_RERANKER"},
                ) from error
        return None if answer is None else self._read(answer, len(passages))

    async def _request(self, query: str, passages: Sequence[str]) -> bytes | None:
        in_texts = self._takes_texts
        body = self._body(query, passages)
        status, headers, answer = await self._post(body)
        if status in BUSY:
            wait = read_retry_after(headers)
            wait = DEFAULT_WAIT_SECONDS if wait is None else wait
            if wait <= MAX_WAIT_SECONDS:
                await asyncio.sleep(wait)
                status, headers, answer = await self._post(body)
        if status in GOOD:
            return answer
        if status in REFUSED and not in_texts and b"texts" in answer:
            self._takes_texts = True
            return None
        if status in BUSY:
            raise Unavailable(
                f"the rerank service at {self._where} is too busy ({status}): try again later",
                details={"field": "TOOLSCRIPT_RERANKER", "status": status},
            )
        field = "TOOLSCRIPT_RERANKER_KEY" if status in DENIED else "TOOLSCRIPT_RERANKER"
        raise self._fail(f"answered {status}: {self._quote(answer)}. Check {field}", field=field)

    async def _post(self, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        received, size = bytearray(), AnswerSize()
        async with self._client.stream("POST", self._url, content=body) as answer:
            async for piece in answer.aiter_raw():
                received += piece
                size.add(piece)
                if size.exceeds(MAX_RERANK_BYTES):
                    raise self._fail(f"sent more than the maximum of {MAX_RERANK_BYTES} bytes")
            return answer.status_code, answer.headers, bytes(received)

    def _body(self, query: str, passages: Sequence[str]) -> bytes:
        if self._takes_texts:
            body: dict[str, Any] = {"query": query, "texts": list(passages), "truncate": True}
        else:
            body = {"query": query, "documents": list(passages), "top_n": len(passages)}
            if self._model:
                body["model"] = self._model
        # Lone surrogates, which UTF-8 cannot carry, are replaced.
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

    def _read(self, answer: bytes, passages: int) -> list[float]:
        """The scores in the order of the passages. Raises UpstreamFailed unless each has exactly one number."""
        try:
            response = json.loads(answer)
            rows = response["results"] if isinstance(response, dict) else response
            pairs = [(row["index"], next(row[name] for name in SCORES if name in row)) for row in rows]
            indexes = [index for index, _ in pairs if isinstance(index, int) and not isinstance(index, bool)]
            is_complete = sorted(indexes) == list(range(passages)) and len(pairs) == passages
            scores = {index: _number(score) for index, score in pairs} if is_complete else {}
        except (ValueError, LookupError, TypeError, StopIteration, OverflowError, RecursionError) as error:
            raise self._fail(f"sent an unusable response: {self._quote(answer)}") from error
        if not is_complete:
            raise self._fail(f"did not score each of the {passages} passages once: {self._quote(answer)}")
        return [scores[index] for index in range(passages)]

    def _fail(self, what: str, field: str = "TOOLSCRIPT_RERANKER") -> UpstreamFailed:
        return UpstreamFailed(f"the rerank service at {self._where} {what}", details={"field": field})

    def _quote(self, answer: bytes) -> str:
        """A service's message, short and without the key: some services repeat the key."""
        text = " ".join(answer[: 4 * MAX_REASON_LENGTH].decode(errors="replace").split())
        return (text.replace(self._key, "[key]") if self._key else text)[:MAX_REASON_LENGTH] or "(empty)"


def _endpoint(url: str) -> str:
    service = "the URL of a rerank service, such as http://127.0.0.1:8080/rerank"
    require_http_url(url, "TOOLSCRIPT_RERANKER", f"{service}, or a folder with an ONNX cross-encoder")
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith("rerank") else f"{path}/rerank").geturl()


def _authorization(key: str | None) -> dict[str, str]:
    if not key:
        return {}
    if not key.isascii() or not key.isprintable():
        raise Invalid(
            "TOOLSCRIPT_RERANKER_KEY has characters that are not allowed: use printable ASCII only",
            details={"field": "TOOLSCRIPT_RERANKER_KEY"},
        )
    return {"Authorization": f"Bearer {key}"}


def _number(score: Any) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ValueError(f"{score!r} is not a score")
    return float(score)
